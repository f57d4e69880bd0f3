"""Reads untrusted .npy and .npz data: numbers only, and as many as the header says.

numpy's own reader evaluates the header as Python, allocates memory before it knows the amount of
data, and raises many kinds of exceptions. This one reads the three fields that numpy writes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edgekit.base.wording import counted
from edgekit.base.zip_reader import ZipMember, read_zip

Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000
_MOST_DIMENSIONS = 32
_MOST_BYTES = 1 << 62
_LENGTHS = {1: 2, 2: 4, 3: 4}
"""The bytes of the header's length, by version."""
_FIELD = re.compile(
    r"""\s*(['"])(\w+)\1\s*:\s*(?:(['"])([^'"\\]*)\3|(True|False)|\(([\d,\sL]*)\))\s*(?:,|$)"""
)
_DTYPE = re.compile(r"[<>|=]?(?:[biufcSUVO?]\d{0,9}|[mM]8(?:\[\d{0,9}\w{1,2}\])?)", re.ASCII)


class NpyError(ValueError):
    """The data is no .npy data that edgekit reads; the message says why."""


@dataclass(frozen=True)
class NpyHeader:
    """The header of .npy data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool = False

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy_header(stream: BinaryIO) -> NpyHeader:
    """Read the header of .npy data; NpyError if the data is something else."""
    if _exactly(stream, len(_MAGIC)) != _MAGIC:
        raise NpyError("it does not begin as .npy data does")
    major, minor = _exactly(stream, 2)
    if major not in _LENGTHS or minor:
        raise NpyError(f"its .npy version {major}.{minor} is not 1.0, 2.0 or 3.0")
    length = int.from_bytes(_exactly(stream, _LENGTHS[major]), "little")
    if length > _LONGEST_HEADER:
        raise NpyError(f"its header has {counted(length, 'byte')}")
    header = _parsed(
        _exactly(stream, length).decode("latin-1" if major < 3 else "utf-8", "replace")
    )
    if header.bytes > _MOST_BYTES:
        raise NpyError("its shape is larger than any memory")
    return header


def read_npy(stream: BinaryIO) -> Array:
    """Read .npy data; NpyError if it is cut off or holds Python objects."""
    header = read_npy_header(stream)
    if header.dtype.hasobject:
        raise NpyError("it holds pickled Python objects, which edgekit does not load")
    begin = stream.tell()
    found = stream.seek(0, io.SEEK_END) - begin
    stream.seek(begin)
    if found < header.bytes:
        raise NpyError(f"it holds {counted(found, 'byte')} where its shape needs {header.bytes:,}")
    array = np.empty(math.prod(header.shape), header.dtype)
    if array.size and stream.readinto(array.view(np.uint8).data) != header.bytes:  # type: ignore[attr-defined]
        raise NpyError("it became shorter while it was read")
    return array.reshape(header.shape, order="F" if header.fortran_order else "C")


@dataclass(frozen=True)
class NpzEntry:
    """One array in an .npz file."""

    _member: ZipMember

    @property
    def file_bytes(self) -> int:
        """Return its unpacked bytes, header included."""
        return self._member.size

    def header(self) -> NpyHeader:
        return read_npy_header(io.BytesIO(self._member.read_first(_LONGEST_HEADER + 12)))

    def read(self) -> Array:
        return read_npy(io.BytesIO(self._member.read()))


@contextmanager
def open_npz(path: Path) -> Iterator[Mapping[str, NpzEntry]]:
    """List the arrays in an .npz file by name without reading them."""
    with path.open("rb") as stream:
        members = read_zip(stream, most_expansion=None)
        entries = {name.removesuffix(".npy"): NpzEntry(found) for name, found in members.items()}
        if len(entries) != len(members):
            raise NpyError("it holds two arrays of one name")
        yield entries


def _parsed(text: str) -> NpyHeader:
    inside = re.fullmatch(r"\s*\{(.*)\}\s*", text, re.DOTALL)
    fields: dict[str, re.Match[str]] = {}
    position, inner = 0, inside[1].rstrip() if inside else ""
    while position < len(inner):
        field = _FIELD.match(inner, position)
        if field is None or field[2] in fields:
            raise NpyError("its header describes no array of numbers")
        fields[field[2]] = field
        position = field.end()
    if fields.keys() != {"descr", "fortran_order", "shape"}:
        raise NpyError("its header describes no array of numbers")
    order, shape = fields["fortran_order"][5], fields["shape"][6]
    if order is None or shape is None:
        raise NpyError("its header describes no array of numbers")
    return NpyHeader(_shape(shape), _dtype(fields["descr"][4]), order == "True")


def _shape(text: str) -> tuple[int, ...]:
    parts = [part.strip().removesuffix("L") for part in text.split(",")]
    if parts[-1] == "":
        parts.pop()
    elif len(parts) == 1:
        raise NpyError("its shape is no tuple")
    if len(parts) > _MOST_DIMENSIONS or not all(re.fullmatch(r"\d{1,19}", p) for p in parts):
        raise NpyError("its shape is no array's")
    return tuple(int(part) for part in parts)


def _dtype(text: str | None) -> np.dtype[Any]:
    if text is None or not _DTYPE.fullmatch(text):
        raise NpyError("its header describes no array of numbers")
    try:
        dtype = np.dtype(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise NpyError(f"its type {text[:20]!r} is none of numpy's") from error
    if dtype.itemsize == 0:
        raise NpyError(f"its type {text[:20]!r} holds nothing")
    return dtype


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise NpyError("it is cut off")
    return data
