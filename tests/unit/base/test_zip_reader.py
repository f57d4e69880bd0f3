"""A zip file is read only where every reader would find the same in it."""

from __future__ import annotations

import ast
import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.source import modules

from edgekit.base.zip_reader import ZipError, read_zip


def packed(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members of one name
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name, content in members:
                archive.writestr(name, content)
    return stream.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    return {name: member.read() for name, member in read_zip(io.BytesIO(data)).items()}


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,5}(/[0-9]{1,5})?", fullmatch=True), st.binary()),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_what_python_packs_is_read_as_it_was(contents: dict[str, bytes], method: int) -> None:
    data = packed(*contents.items(), method=method)

    try:
        found = unpacked(data)
    except ZipError as error:
        assert "below a file" in str(error)  # "a" and "a/1"
    else:
        assert found == contents


def test_what_numpy_packs_is_read_as_it_was() -> None:
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, first=np.arange(5), second=np.zeros((300, 300)))
        found = unpacked(stream.getvalue())
        assert (np.load(io.BytesIO(found["second.npy"])) == 0).all()
        assert found.keys() == {"first.npy", "second.npy"}


def test_a_member_written_before_its_size_was_known_is_read() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

    stream = Pipe()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", b"PK\7\x08 and more")

    assert unpacked(stream.getvalue()) == {"a": b"PK\7\x08 and more"}


@pytest.mark.parametrize(
    "names",
    [
        ("m/x", "m/x"),
        ("m/x", "m/X"),
        ("m/x", "m/\uff58"),
        ("m/\u00e9", "m/e\u0301"),
        ("m/x", "m/./x"),
        ("m/x", "m//x"),
        ("m/x", "../m/x"),
        ("m/x", "/m/x"),
        ("m/x", "m\\x"),
        ("m/x", "m/x\u200b"),
        ("m/x", "m/x/y"),
    ],
)
def test_two_names_that_some_reader_takes_for_one_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(ZipError):
        unpacked(packed((names[0], b"good"), (names[1], b"evil")))


def patched(data: bytes, position: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


def central(data: bytes) -> int:
    return data.index(b"PK\1\2")


Spoil = Callable[[bytes], bytes]
SPOILS: dict[str, Spoil] = {
    "something in front": lambda data: b"#!/bin/sh\n" + data,
    "something behind": lambda data: data + b"\n",
    "a second zip behind": lambda data: data + packed(("m/x", b"evil")),
    "a comment": lambda data: patched(data, len(data) - 2, "<H", 3) + b"abc",
    "another size in front": lambda data: patched(data, 22, "<I", 3),
    "another checksum in front": lambda data: patched(data, 14, "<I", 3),
    "another method in front": lambda data: patched(data, 8, "<H", 8),
    "another name in front": lambda data: data.replace(b"m/x", b"m/z", 1),
    "another checksum": lambda data: patched(
        patched(data, 14, "<I", 3), central(data) + 16, "<I", 3
    ),
    "encrypted": lambda data: patched(patched(data, 6, "<H", 1), central(data) + 8, "<H", 1),
    "an unknown method": lambda data: patched(
        patched(data, 8, "<H", 14), central(data) + 10, "<H", 14
    ),
    "another beginning": lambda data: patched(data, central(data) + 42, "<I", 1),
    "one entry too many": lambda data: patched(data, len(data) - 14, "<I", 0x00020002),
    "another disk": lambda data: patched(data, len(data) - 18, "<H", 1),
    "a gap before the directory": lambda data: patched(
        data[: central(data)] + b"gap" + data[central(data) :],
        len(data) + 3 - 6,
        "<I",
        central(data) + 3,
    ),
    "a link": lambda data: patched(data, central(data) + 38, "<I", (stat.S_IFLNK | 0o777) << 16),
    "a device": lambda data: patched(data, central(data) + 38, "<I", (stat.S_IFBLK | 0o666) << 16),
    "a folder in a file's name": lambda data: patched(
        data, central(data) + 38, "<I", (stat.S_IFDIR | 0o755) << 16
    ),
    "a size without its field": lambda data: patched(data, central(data) + 24, "<I", 0xFFFFFFFF),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_two_readers_may_read_differently_is_refused(spoil: Spoil) -> None:
    whole = packed(("m/x", b"some content"))
    assert unpacked(whole) == {"m/x": b"some content"}

    with pytest.raises(ZipError):
        unpacked(spoil(whole))


def test_overlapping_members_are_refused() -> None:
    """Both entries of the directory are sound; the second one's member lies in the first's data."""
    inner = packed(("m/b", b"evil"))
    data = packed(("m/a", inner), ("m/b", b"good"))
    second = data.index(b"PK\1\2", data.index(b"PK\1\2", central(data) + 1) + 1)
    overlapping = patched(data, second + 42, "<I", data.index(inner))

    with pytest.raises(ZipError):
        unpacked(overlapping)


def test_a_member_that_unpacks_to_more_than_it_says_is_refused() -> None:
    data = packed(("m/x", bytes(10_000_000)), method=zipfile.ZIP_DEFLATED)
    lying = patched(patched(data, 22, "<I", 100), central(data) + 24, "<I", 100)

    with pytest.raises(ZipError):
        unpacked(lying)


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused() -> None:
    bomb = packed(("m/x", bytes(70 << 20)), method=zipfile.ZIP_DEFLATED)

    with pytest.raises(ZipError, match="would unpack to"):
        unpacked(bomb)


def test_python_s_own_reader_of_zip_files_reads_none_in_edgekit() -> None:
    """zipfile only writes: whatever edgekit reads goes through the one reader."""
    opened = [
        (module.path.name, ast.unparse(node))
        for module in modules().values()
        for node in module.nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2]
        in ("ZipFile", "PyZipFile", "is_zipfile", "unpack_archive", "zipimporter")
        and ast.unparse(node.func) != "unpack_archive"
    ]

    assert len(opened) >= 2  # a bundle's .zip, and the program that torch gets
    assert [found for found in opened if "'w'" not in found[1]] == []


@given(st.data())
def test_damage_is_a_zip_error_and_nothing_else(data: st.DataObject) -> None:
    whole = packed(("m/x", b"some content"), ("m/y", bytes(100)), method=zipfile.ZIP_DEFLATED)
    positions = st.integers(0, len(whole) - 1)
    changed = bytearray(whole)
    for position in data.draw(st.lists(positions, min_size=1, max_size=4)):
        changed[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(changed), whole[:cut], whole[cut:]):
        try:
            found = unpacked(damaged)
        except ZipError:
            continue
        assert found.keys() <= {"m/x", "m/y"} or len(found) == 2
