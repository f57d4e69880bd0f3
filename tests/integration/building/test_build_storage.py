"""Full and read-only disks: a sentence and a hint, never half a bundle, never a lost build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.building import (
    READ_ONLY,
    contents,
    names_in,
    request_for,
    run_edgekit,
    run_with_mount,
    tmpfs,
    write_model,
)
from support.needs import needs

from edgekit.base.events import Event, Events, Warned
from edgekit.building.build import build
from edgekit.bundle.folder import open_bundle

STORAGE = 9


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path, cache: Path) -> Path:
    return write_model(tmp_path / "tiny.onnx")


@pytest.fixture
def mount_point(tmp_path: Path) -> Path:
    (tmp_path / "mount").mkdir()
    return tmp_path / "mount"


@needs("mounts")
@pytest.mark.parametrize(
    ("options", "says"), [("ro", "read-only file system"), ("size=16k", "no space left on device")]
)
def test_a_disk_that_takes_no_bundle_is_named(
    model: Path, mount_point: Path, tmp_path: Path, options: str, says: str
) -> None:
    out = mount_point / "b"
    ran = run_with_mount(
        tmpfs(options),
        mount_point,
        ["build", str(model), "-b", "local", "-o", str(out)],
        folder=tmp_path,
    )
    assert ran.code == STORAGE, ran.err
    assert says in ran.err
    assert "hint:" in ran.err
    assert str(mount_point) in ran.err
    assert ran.out.split() == [], "something was left on the disk"


@needs("mounts")
def test_a_disk_too_full_for_intermediate_files_is_named(
    model: Path, mount_point: Path, tmp_path: Path
) -> None:
    """Intermediate files lie beside the bundle if there is no cache; LLVM writes them."""
    out = mount_point / "b"
    arguments = ["build", str(model), "-b", "local", "-o", str(out), "--no-cache"]
    for size in ("8k", "24k", "40k", "48k"):
        ran = run_with_mount(tmpfs(f"size={size}"), mount_point, arguments, folder=tmp_path)
        assert ran.code == STORAGE, ran.err
        assert "hint:" in ran.err
        assert str(out) in ran.err
        assert "edgekit-tmp" not in ran.err, "a name that nobody knows"
        assert "EDGEKIT_CACHE_DIR" not in ran.err, "it is not the cache that is full"
        assert ran.out.split() == [], "something was left on the disk"


@needs("mounts")
@pytest.mark.parametrize("options", ["ro", "size=4k", "size=32k"])
def test_a_cache_that_takes_nothing_costs_a_warning_only(
    model: Path, tmp_path: Path, cache: Path, options: str
) -> None:
    cache.mkdir()
    arguments = ["build", str(model), "-b", "local", "-o", str(tmp_path / "b")]
    ran = run_with_mount(tmpfs(options), cache, arguments, folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "not cached" in ran.err
    assert open_bundle(tmp_path / "b").manifest.model.name == "tiny"
    assert names_in(tmp_path) == {"b", "cache", "tiny.onnx"}


@needs("mounts")
def test_a_read_only_cache_is_still_good_to_read_from(
    model: Path, tmp_path: Path, cache: Path
) -> None:
    first = run_edgekit("build", str(model), "-b", "local", "-o", "b", folder=tmp_path)
    assert first.code == 0, first.err
    before = contents(cache)
    arguments = ["build", str(model), "-b", "local", "-o", str(tmp_path / "again")]
    ran = run_with_mount(READ_ONLY, cache, arguments, folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "from the cache" in ran.out
    assert ran.err == ""
    assert contents(tmp_path / "again") == contents(tmp_path / "b")
    assert contents(cache) == before


def test_a_damaged_cache_entry_is_noticed_and_made_again(
    model: Path, tmp_path: Path, cache: Path
) -> None:
    request = request_for(model)
    first = build(request, tmp_path / "b", isolated=False)
    (entry,) = (cache / "builds/entries").iterdir()
    library = entry / "content/model.so"
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)

    heard: list[Event] = []
    second = build(request, tmp_path / "b", isolated=False, events=Events(heard.append))
    assert not second.from_cache
    assert second.bundle.digest == first.bundle.digest
    assert any(isinstance(event, Warned) and "damaged" in event.text for event in heard)

    third = build(request, tmp_path / "b", isolated=False, events=Events(heard.append))
    assert third.from_cache


def test_a_destination_below_a_file_is_refused(model: Path, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "file").write_text("precious")
    ran = run_edgekit(
        *("build", str(model), "-b", "local", "-o", "file/b", "--json"), folder=tmp_path
    )
    assert ran.code == STORAGE
    assert json.loads(ran.out)["error"]["hint"]
    assert (tmp_path / "file").read_text() == "precious"


@needs("mounts")
def test_outputs_that_find_no_room_leave_no_folder(
    model: Path, mount_point: Path, tmp_path: Path
) -> None:
    built = run_edgekit("build", str(model), "-b", "local", "-o", "b", folder=tmp_path)
    assert built.code == 0, built.err
    for out, folders in (("results/first", 3), ("results/first.npz", 2)):
        arguments = ["run", str(tmp_path / "b"), "--out", str(mount_point / out)]
        room = tmpfs(f"size=4k,nr_inodes={folders}")  # for the folders and no file
        ran = run_with_mount(room, mount_point, arguments, folder=tmp_path)
        assert ran.code == STORAGE, ran.err
        assert ran.out.splitlines()[-1].split() == [], "something was left on the disk"


@needs("mounts")
def test_a_profile_that_finds_no_room_leaves_no_folder(mount_point: Path, tmp_path: Path) -> None:
    out = mount_point / "boards/mine.toml"
    arguments = ["boards", "new", "mine", "--like", "rpi4", "-o", str(out)]
    ran = run_with_mount(tmpfs("size=4k,nr_inodes=2"), mount_point, arguments, folder=tmp_path)
    assert ran.code == STORAGE, ran.err
    assert ran.out.split() == [], "something was left on the disk"
