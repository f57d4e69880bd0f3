"""What a recipe may say, where pip would look, and what an archive may not do."""

from __future__ import annotations

import io
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.libraries import ncnn_layers
from support.toy_library import RECIPE, write_toy

from edgekit.base.errors import BuildError, ProfileError
from edgekit.base.own_backends import own_backends
from edgekit.building.prebuild import libraries_for
from edgekit.cross.cmake import toolchain_file
from edgekit.cross.sources import built_in_recipe, load_recipe, recipe_names
from edgekit.cross.sources.index import parse_pip_settings, read_links
from edgekit.cross.sources.steps import jobs, telling_lines
from edgekit.cross.sources.unpack import take, unpack
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("name", recipe_names())
def test_every_built_in_recipe_is_sound_and_belongs_to_a_backend(name: str) -> None:
    recipe = built_in_recipe(name)

    assert recipe.name in own_backends()
    assert recipe.archives
    assert {"LICENSE"} & {
        target for archive in recipe.archives for target in archive.take.values()
    }, "who uses it must be able to pass its licence on"


def test_a_layer_of_ncnn_is_on_or_off_and_never_both() -> None:
    recipe = built_in_recipe("ncnn")
    assert recipe.cmake is not None
    on = ncnn_layers()
    off = [name for group in recipe.cmake.switches for name in group.off]

    assert len(on) == len(set(on)) > 70
    assert not set(on) & set(off)


def test_a_variant_is_another_version_with_what_is_added_for_it() -> None:
    recipe = built_in_recipe("ncnn")
    variant = recipe.as_variant("vulkan")

    assert variant.version == f"{recipe.version}+vulkan"
    (added,) = (when for when in recipe.whens if when.variant == "vulkan")
    assert [when.variant for when in variant.whens] == [None] * len(recipe.whens)
    assert "LICENSE.glslang" in added.take.values()
    (chosen,) = libraries_for(load_board("local-vulkan"))
    assert chosen == variant


def test_a_boards_libraries_are_those_that_it_allows_and_can_run() -> None:
    assert [recipe.name for recipe in libraries_for(load_board("rpi4"))] == [
        "ncnn",
        "acl",
        "onnxruntime",
    ]
    assert libraries_for(load_board("nrf52840-dk")) == ()


def test_an_unknown_library_is_told_with_the_nearest() -> None:
    with pytest.raises(ProfileError) as unknown:
        built_in_recipe("ncn")
    assert unknown.value.hint == "did you mean ncnn?"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ('source = "../elsewhere"', "cmake.source"),
        ('link = ["-fplugin=evil.so"]', "products.link"),
        ('link = ["/usr/lib/libtoy.a"]', "products.link"),
        ('include = ["../../include"]', "products.include"),
        ('sha256 = "abc"', "archive.0.sha256"),
        ('options = { "TOY;X" = "1" }', "cmake.options"),
        ('options = { TOY = "$(reboot)" }', "cmake.options.TOY"),
        ('colour = "red"', "colour"),
    ],
)
def test_a_wrong_recipe_is_refused_by_the_key(tmp_path: Path, wrong: str, complaint: str) -> None:
    file = tmp_path / "toy.toml"
    key = wrong.partition(" ")[0]
    text = RECIPE.format(sha256="0" * 64, twice="OFF")
    lines = [wrong if line.startswith(f"{key} =") else line for line in text.splitlines()]
    if wrong not in lines:
        lines.append(wrong)
    file.write_text("\n".join(lines))

    with pytest.raises(ProfileError) as refused:
        load_recipe(file)

    assert complaint in " ".join((refused.value.message, *refused.value.details))


def test_what_pip_is_told_for_downloads_wins_and_the_environment_over_all() -> None:
    settings = parse_pip_settings(
        "global.index-url='https://one.example/simple'\n"
        "global.extra-index-url='https://two.example/simple\\nhttps://three.example/simple'\n"
        "download.index-url='https://four.example/simple'\n"
        "install.index-url='https://five.example/simple'\n"
        ":env:.cert='/etc/ours.pem'\n"
        "global.cert='/etc/theirs.pem'\n"
    )
    assert settings == {
        "index-url": "https://four.example/simple",
        "extra-index-url": "https://two.example/simple\nhttps://three.example/simple",
        "cert": "/etc/ours.pem",
    }


@given(st.text(max_size=200))
def test_whatever_pip_lists_is_read_without_a_crash(text: str) -> None:
    parse_pip_settings(text)


def test_links_of_both_kinds_of_page_are_made_whole() -> None:
    base = "https://index.example/simple/toy/"
    html = b'<a href="../../files/toy%2B1.tar.gz#sha256=0">x</a><a>no</a><a href="//cdn/t.whl">'
    as_json = b'{"files": [{"filename": "t.whl", "url": "https://cdn/t.whl"}]}'

    assert dict(read_links(base, "text/html", html)) == {
        "toy+1.tar.gz": "https://index.example/files/toy%2B1.tar.gz",
        "t.whl": "https://cdn/t.whl",
    }
    assert dict(read_links(base, "application/vnd.pypi.simple.v1+json", as_json)) == {
        "t.whl": "https://cdn/t.whl"
    }


def tar_with(folder: Path, member: tarfile.TarInfo, data: bytes = b"") -> Path:
    archive = folder / "hostile.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return archive


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out", "a\\b", "."])
def test_nothing_of_an_archive_lands_outside(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    with pytest.raises(BuildError, match=r"leads out of the folder|no plain path"):
        unpack(tar_with(tmp_path, tarfile.TarInfo(name), b"x"), folder)
    zipped = tmp_path / "hostile.whl"
    with zipfile.ZipFile(zipped, "w") as bundle:
        bundle.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(BuildError, match=r"leads out of the folder|no plain path"):
        unpack(zipped, folder)

    assert list(tmp_path.rglob("out")) == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_an_archive_holds_files_and_folders_only(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("thing")
    member.type, member.linkname = kind, "/etc/passwd"
    folder = tmp_path / "here"
    folder.mkdir()

    with pytest.raises(BuildError, match="neither file nor folder"):
        unpack(tar_with(tmp_path, member), folder)


@pytest.mark.parametrize("second", ["toy/a", "toy/./a", "toy/A", "toy/\uff21"])
def test_an_archive_holds_no_file_twice(tmp_path: Path, second: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with tarfile.open(tmp_path / "twice.tar.gz", "w:gz") as tar:
        for name in ("toy/a", second):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(BuildError, match=r"twice|damaged"):
        unpack(tmp_path / "twice.tar.gz", folder)


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2"])
def test_damage_to_an_archive_is_a_sentence(tmp_path: Path, suffix: str) -> None:
    whole = tmp_path / f"toy.tar.{suffix}"
    with tarfile.open(whole, f"w:{suffix}") as tar:
        member = tarfile.TarInfo("toy/a")
        member.size = 4000
        tar.addfile(member, io.BytesIO(RANDOM.bytes(4000)))
    data = whole.read_bytes()
    for trial in range(60):
        changed = bytearray(data)
        changed[int(RANDOM.integers(len(data)))] ^= 1 << int(RANDOM.integers(8))
        whole.write_bytes(changed[: int(RANDOM.integers(len(data)))] if trial % 3 else changed)
        (tmp_path / f"{trial}").mkdir()
        with suppress(BuildError):
            unpack(whole, tmp_path / f"{trial}")


def test_a_damaged_archive_is_a_sentence(tmp_path: Path) -> None:
    archive = tmp_path / "toy.tar.gz"
    archive.write_bytes(b"\x1f\x8b not really")
    with pytest.raises(BuildError, match="it is damaged"):
        unpack(archive, tmp_path)


def test_a_link_in_a_tree_does_not_lead_out_of_it(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "lib").symlink_to("/etc")
    with pytest.raises(BuildError, match="has no lib"):
        take(tree, {"lib": "lib"}, tmp_path / "library", "the archive")


def test_of_a_failed_build_the_failure_is_shown_and_not_what_came_after() -> None:
    lines = ["[1/3] one", "FAILED: two.o", "two.cc:1: error: no", *(["warning"] * 50), "stopped"]

    assert telling_lines(lines)[:2] == ("FAILED: two.o", "two.cc:1: error: no")
    assert telling_lines(["a", "b"]) == ("a", "b")


def test_the_number_of_compilers_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "7")
    assert jobs() == 7
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "many")
    assert jobs() >= 1


def test_a_toolchain_file_names_tools_as_the_profile_does() -> None:
    text = toolchain_file(
        load_toolchain("aarch64-linux-gnu"), ("-mcpu=cortex-a72",), host_paths=False
    )

    assert 'set(CMAKE_CXX_COMPILER "aarch64-linux-gnu-g++")' in text
    assert 'set(CMAKE_SYSTEM_PROCESSOR "aarch64")' in text
    assert 'set(CMAKE_CXX_FLAGS_INIT "-mcpu=cortex-a72")' in text


def test_the_toys_recipe_is_read_as_it_is_written(tmp_path: Path) -> None:
    recipe = load_recipe(write_toy(tmp_path, twice="ON"))

    assert recipe.cmake is not None
    assert recipe.cmake.options == {"TOY_TWICE": "ON"}
    assert recipe.products.link == ("lib/libtoy.a",)
