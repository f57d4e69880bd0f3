"""A bundle opens as a folder or as a .zip if it is whole, and is refused if anything is off."""

from __future__ import annotations

import io
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import INPUTS, OUTPUTS, edit_manifest, make_bundle, rename_library, sealed

import edgekit.bundle.archive
from edgekit.base.cache import BuildCache
from edgekit.base.errors import BundleError
from edgekit.bundle.archive import write_archive
from edgekit.bundle.folder import (
    Bundle,
    copy_bundle,
    foreign_file,
    open_bundle,
    write_manifest,
    write_tensor,
)
from edgekit.bundle.manifest import Manifest, manifest_text


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "bundle")


@pytest.fixture
def archive(bundle: Bundle, tmp_path: Path) -> Path:
    write_archive(bundle.path, bundle.manifest, tmp_path / "bundle.zip")
    return tmp_path / "bundle.zip"


def assert_same_arrays(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_bundle_gives_back_what_went_in(bundle: Bundle) -> None:
    assert bundle.library.read_bytes().startswith(b"\x7fELF")
    assert_same_arrays(bundle.reference_inputs(), INPUTS)
    assert_same_arrays(bundle.reference_outputs(), OUTPUTS)


def test_the_digest_follows_every_file(bundle: Bundle, tmp_path: Path) -> None:
    assert make_bundle(tmp_path / "same").digest == bundle.digest
    other = replace(bundle.manifest, seed=8)
    write_manifest(bundle.path, other)
    assert open_bundle(bundle.path).digest != bundle.digest


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_reference_vectors_of_every_kind_survive(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    import ml_dtypes

    bundle = make_bundle(tmp_path / "b")
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    array = np.ones(shape, dtype=kind)
    file = bundle.path / "reference/random/output-0.npy"
    file.unlink()
    write_tensor(file, array)

    def change(document: dict[str, Any]) -> None:
        from edgekit.base.files import sha256_file

        document["outputs"][0]["spec"].update(dtype=dtype, shape=list(shape))
        document["files"][3].update(size=file.stat().st_size, sha256=sha256_file(file))

    edit_manifest(bundle.path, change)
    assert_same_arrays(open_bundle(bundle.path).reference_outputs(), {"scores": array})


@pytest.mark.parametrize("position", [0, 1, 100, 5000, -1])
@pytest.mark.parametrize(
    "name",
    ["model.so", "reference/random/input-0.npy", "reference/random/output-0.npy", "manifest.json"],
)
def test_one_flipped_byte_is_noticed(bundle: Bundle, name: str, position: int) -> None:
    data = bytearray((bundle.path / name).read_bytes())
    data[position % len(data)] ^= 0x40
    (bundle.path / name).write_bytes(data)
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle.path)
    assert caught.value.hint


def _remove(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _grow(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"\0")


def _make_link(file: Path) -> None:
    copy = file.with_name("copy")
    file.rename(copy)
    file.symlink_to(copy.name)


def _make_link_out(file: Path) -> None:
    outside = file.parent.parent / "outside"
    file.rename(outside)
    file.symlink_to(outside)


def _make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _make_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("name", ["model.so", "manifest.json"])
@pytest.mark.parametrize(
    "spoil", [_remove, _cut, _grow, _make_link, _make_link_out, _make_folder, _make_pipe]
)
def test_a_spoilt_file_is_noticed(bundle: Bundle, name: str, spoil: Callable[[Path], None]) -> None:
    spoil(bundle.path / name)
    with pytest.raises(BundleError):
        open_bundle(bundle.path)


UNSAFE = ["../secret", "/etc/passwd", "reference/../../secret", "a\\b", "model\0.so", "./model.so"]


@pytest.mark.parametrize("name", UNSAFE)
def test_a_path_that_leads_out_of_the_bundle_is_refused(
    bundle: Bundle, tmp_path: Path, name: str
) -> None:
    library = bundle.library.read_bytes()
    (tmp_path / "secret").write_bytes(library)
    hostile = rename_library(bundle.manifest, name)
    (bundle.path / "manifest.json").write_text(manifest_text(hostile))
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle.path)
    assert "path" in caught.value.message


def test_a_huge_size_is_refused_before_anything_is_read(bundle: Bundle) -> None:
    edit_manifest(bundle.path, lambda document: document["files"][0].update(size=2**52))
    with pytest.raises(BundleError, match="4,503,599,627,370,496"):
        open_bundle(bundle.path)


def test_a_manifest_that_is_too_large_is_not_read(bundle: Bundle) -> None:
    with (bundle.path / "manifest.json").open("ab") as stream:
        stream.truncate(1 << 40)  # a hole: takes no room
    with pytest.raises(BundleError, match="larger"):
        open_bundle(bundle.path)


def test_vectors_of_another_shape_than_the_manifest_says_are_refused(bundle: Bundle) -> None:
    edit_manifest(bundle.path, lambda document: document["outputs"][0]["spec"].update(shape=[2, 2]))
    with pytest.raises(BundleError, match=r"output-0\.npy"):
        open_bundle(bundle.path).reference_outputs()


@pytest.mark.parametrize("content", ["objects", "text", "short"])
def test_vectors_that_are_no_plain_arrays_are_refused(bundle: Bundle, content: str) -> None:
    from edgekit.base.files import sha256_file

    file = bundle.path / "reference/random/output-0.npy"
    if content == "objects":
        np.save(file, np.array([[object(), None]], dtype=object), allow_pickle=True)
    elif content == "text":
        file.write_text("not numbers")
    else:
        os.truncate(file, 130)
    edit_manifest(
        bundle.path,
        lambda document: document["files"][3].update(
            size=file.stat().st_size, sha256=sha256_file(file)
        ),
    )
    with pytest.raises(BundleError):
        open_bundle(bundle.path).reference_outputs()


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a text file"])
def test_what_is_no_bundle_is_named(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "an empty folder":
        place.mkdir()
    elif what == "a text file":
        place.write_text("hello")
    with pytest.raises(BundleError) as caught:
        open_bundle(place)
    assert str(place) in caught.value.message


def test_an_archive_opens_like_its_folder(bundle: Bundle, archive: Path) -> None:
    opened = open_bundle(archive)
    assert opened.digest == bundle.digest
    assert opened.path != bundle.path
    assert_same_arrays(opened.reference_outputs(), OUTPUTS)


def test_an_archive_is_unpacked_once(archive: Path) -> None:
    first = open_bundle(archive)
    created = first.library.stat().st_mtime_ns
    assert open_bundle(archive).library.stat().st_mtime_ns == created
    assert [entry.kind for entry in BuildCache().entries()] == ["unpacked"]


def test_an_unpacked_archive_that_was_damaged_is_unpacked_again(
    bundle: Bundle, archive: Path
) -> None:
    opened = open_bundle(archive)
    opened.library.write_bytes(b"damaged")
    assert open_bundle(archive).library.read_bytes() == bundle.library.read_bytes()


def test_the_same_bundle_gives_the_same_archive(
    bundle: Bundle, archive: Path, tmp_path: Path
) -> None:
    copy = make_bundle(tmp_path / "copy")
    os.utime(copy.library, (0, 0))
    copy.library.chmod(0o700)
    write_archive(copy.path, copy.manifest, tmp_path / "copy.zip")
    assert (tmp_path / "copy.zip").read_bytes() == archive.read_bytes()


def test_an_archive_packed_by_another_program_opens(bundle: Bundle, tmp_path: Path) -> None:
    other = shutil.make_archive(str(tmp_path / "other"), "zip", bundle.path)
    assert open_bundle(Path(other)).digest == bundle.digest


def rewrite(archive: Path, **options: Any) -> zipfile.ZipFile:
    """The archive's files in a new archive of the same name, open for more."""
    with zipfile.ZipFile(archive) as old:
        contents = {info.filename: old.read(info) for info in old.infolist()}
    archive.unlink()
    new = zipfile.ZipFile(archive, "w", **options)
    for name, data in contents.items():
        new.writestr(name, data)
    return new


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "extra"])
def test_an_archive_with_a_file_beyond_its_manifest_is_refused(
    archive: Path, tmp_path: Path, name: str
) -> None:
    with rewrite(archive) as changed:
        changed.writestr(name, "hello")
    with pytest.raises(BundleError):
        open_bundle(archive)
    assert not list(tmp_path.rglob("outside"))
    assert BuildCache().entries() == ()


def test_an_archive_whose_manifest_leads_out_is_refused(
    bundle: Bundle, archive: Path, tmp_path: Path
) -> None:
    hostile = rename_library(bundle.manifest, "../outside")
    with zipfile.ZipFile(archive, "w") as changed:
        changed.writestr("manifest.json", manifest_text(hostile))
        changed.writestr("../outside", bundle.library.read_bytes())
        for entry in hostile.files[1:]:
            changed.write(bundle.path / entry.path, entry.path)
    with pytest.raises(BundleError, match=r"leads out|no plain path"):
        open_bundle(archive)
    assert not list(tmp_path.rglob("outside"))


def test_an_archive_with_a_link_is_refused(archive: Path) -> None:
    with zipfile.ZipFile(archive) as old:
        contents = {info.filename: old.read(info) for info in old.infolist()}
    with zipfile.ZipFile(archive, "w") as changed:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name)
            if name == "model.so":
                info.create_system = 3
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
                data = b"/etc/passwd"
            changed.writestr(info, data)
    with pytest.raises(BundleError, match="link"):
        open_bundle(archive)


def test_an_archive_that_unpacks_to_far_more_than_it_is_refused(archive: Path) -> None:
    with (
        rewrite(archive, compression=zipfile.ZIP_DEFLATED) as changed,
        changed.open("bomb", "w") as stream,
    ):
        for _ in range(80):
            stream.write(bytes(1 << 20))
    assert archive.stat().st_size < 1 << 20
    with pytest.raises(BundleError, match="times its size"):
        open_bundle(archive)


def test_an_archive_that_lies_about_a_size_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    """The manifest and the directory say 10 bytes, and much more comes out."""
    stream = io.BytesIO()
    large = bytes(1 << 20)

    def small(document: dict[str, Any]) -> None:
        document["files"][0].update(size=10)

    edit_manifest(bundle.path, small)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as lying:
        for file in sorted(bundle.path.rglob("*")):
            name = file.relative_to(bundle.path).as_posix()
            if file.is_file():
                lying.writestr(name, large if name == "model.so" else file.read_bytes())
        lying.getinfo("model.so").file_size = 10
    (tmp_path / "lying.zip").write_bytes(stream.getvalue())
    with pytest.raises(BundleError):
        open_bundle(tmp_path / "lying.zip")
    assert BuildCache().entries() == ()


def test_an_archive_with_a_file_twice_is_refused(archive: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"), rewrite(archive) as changed:
        changed.writestr("model.so", "another")
    with pytest.raises(BundleError, match="twice"):
        open_bundle(archive)


@pytest.mark.parametrize("name", ["MODEL.SO", "./model.so", "model.so/"])
def test_an_archive_with_two_spellings_of_a_name_is_refused(archive: Path, name: str) -> None:
    with rewrite(archive) as changed:
        changed.writestr(name, "")
    with pytest.raises(BundleError):
        open_bundle(archive)


@pytest.mark.parametrize("spoil", ["in front", "behind", "between"])
def test_an_archive_that_two_readers_read_differently_is_refused(archive: Path, spoil: str) -> None:
    """Python's zipfile opens the first two as if nothing were wrong."""
    data = archive.read_bytes()
    archive.write_bytes(
        {
            "in front": data[:4] + b"junk" + data,
            "behind": data[:-2] + b"\x04\x00PK\x05\x06",
            "between": data.replace(b"model.so", b"model.sO", 1),
        }[spoil]
    )
    with pytest.raises(BundleError, match=r"read alike|reads alike"):
        open_bundle(archive)
    assert BuildCache().entries() == ()


def test_an_archive_that_changes_while_it_is_read_is_kept_nowhere(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The date of a member is no part of a bundle: only the archive's own hash tells."""
    data = archive.read_bytes()
    parse = edgekit.bundle.archive.parse_manifest

    def parse_while_another_writes(text: bytes) -> Manifest:
        archive.write_bytes(data.replace(b"\x00\x00\x21\x00", b"\x00\x00\x22\x00"))
        return parse(text)

    monkeypatch.setattr("edgekit.bundle.archive.parse_manifest", parse_while_another_writes)
    with pytest.raises(BundleError, match="changed while it was read"):
        open_bundle(archive)
    assert BuildCache().entries() == ()


def test_an_archive_without_a_manifest_or_a_file_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    for missing in ("manifest.json", "model.so"):
        with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
            for file in bundle.path.rglob("*"):
                if file.is_file() and file.name != missing:
                    archive.write(file, file.relative_to(bundle.path))
        with pytest.raises(BundleError, match=r"no manifest|lacks"):
            open_bundle(tmp_path / "b.zip")


def test_one_flipped_byte_of_an_archive_is_noticed_or_harmless(
    bundle: Bundle, archive: Path
) -> None:
    """A byte of a date changes nothing; any other is an error, and never a strange one."""
    data = archive.read_bytes()
    for position in range(0, len(data), 97):
        changed = bytearray(data)
        changed[position] ^= 0xFF
        archive.write_bytes(changed)
        try:
            assert open_bundle(archive).digest == bundle.digest
        except BundleError:
            continue


def test_a_copy_is_a_whole_bundle(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    copy_bundle(bundle, tmp_path / "copy")
    assert open_bundle(tmp_path / "copy").digest == bundle.digest


def test_copying_what_was_damaged_since_it_was_opened_is_refused(
    bundle: Bundle, tmp_path: Path
) -> None:
    data = bytearray(bundle.library.read_bytes())
    data[9] ^= 1
    bundle.library.write_bytes(data)
    (tmp_path / "copy").mkdir()
    with pytest.raises(BundleError):
        copy_bundle(bundle, tmp_path / "copy")


def test_files_that_no_build_made_are_found(bundle: Bundle) -> None:
    assert foreign_file(bundle.path) is None
    (bundle.path / "reference/notes.txt").write_text("mine")
    assert foreign_file(bundle.path) == "reference/notes.txt"


def test_a_damaged_bundle_holds_no_foreign_files(bundle: Bundle) -> None:
    _cut(bundle.library)
    (bundle.path / "manifest.json").write_bytes(
        sealed({"schema_version": 5, "files": [{"path": "model.so"}]})
    )
    assert foreign_file(bundle.path) == "reference/random/input-0.npy"
    shutil.rmtree(bundle.path / "reference")
    assert foreign_file(bundle.path) is None


def test_a_link_in_a_bundle_is_foreign(bundle: Bundle, tmp_path: Path) -> None:
    (bundle.path / "link").symlink_to(tmp_path)
    assert foreign_file(bundle.path) == "link"
