"""Cuts files into parts by content: a library's weights are a blob of their own.

A new version of a program with the same weights sends the program alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from edgekit.base.errors import BundleError
from edgekit.bundle.folder import Bundle
from edgekit.bundle.manifest import FileEntry
from edgekit.devices.elf import weight_range

SMALLEST = 64 << 10
"""The fewest bytes of weights that are worth a blob."""
_LIBRARIES = ("library", "shared-library")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Part:
    """Some bytes of a file."""

    path: str
    offset: int
    size: int
    sha256: str


def parts_of(bundle: Bundle) -> tuple[Part, ...]:
    """Cut the files of a bundle."""
    return tuple(part for file in bundle.manifest.files for part in _cut(bundle.path, file))


def parts_of_file(file: FileEntry, parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts that make up a file; if they don't, the file as one part."""
    own = sorted((part for part in parts if part.path == file.path), key=lambda part: part.offset)
    end = 0
    for part in own:
        if part.offset != end or not part.size:
            break
        end += part.size
    else:
        if own and end == file.size:
            return tuple(own)
    return (_whole(file),)


def copy_part(source: Path, offset: int, size: int, target: BinaryIO) -> None:
    """Append a part of a file to another file."""
    with source.open("rb") as stream:
        stream.seek(offset)
        while size and (block := stream.read(min(size, _BLOCK))):
            target.write(block)
            size -= len(block)


def _cut(folder: Path, file: FileEntry) -> tuple[Part, ...]:
    weights = _weights(folder / file.path) if file.role in _LIBRARIES else None
    if weights is None or weights[1] - weights[0] < SMALLEST or weights[1] > file.size:
        return (_whole(file),)
    bounds = sorted({0, *weights, file.size})
    with (folder / file.path).open("rb") as stream:
        return tuple(
            Part(file.path, begin, end - begin, _digest(stream, end - begin))
            for begin, end in pairwise(bounds)
        )


def _weights(library: Path) -> tuple[int, int] | None:
    try:
        return weight_range(library)
    except BundleError:  # no ELF file, such as a module of WebAssembly
        return None


def _whole(file: FileEntry) -> Part:
    return Part(file.path, 0, file.size, file.sha256)


def _digest(stream: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    while size and (block := stream.read(min(size, _BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
