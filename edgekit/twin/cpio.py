"""Archives in the "newc" format, which Linux unpacks as its first file system."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_ALIGNMENT = 4


@dataclass(frozen=True)
class Entry:
    """A file of root's. The archive makes its folders."""

    path: str
    data: bytes
    mode: int = 0o644


def archive(entries: Iterable[Entry]) -> bytes:
    """Pack files. The kernel reads concatenated archives as one."""
    parts: list[bytes] = []
    folders: set[str] = set()
    for number, entry in enumerate(entries, 1):
        for parent in reversed(PurePosixPath(entry.path).parents[:-1]):
            if str(parent) not in folders:
                folders.add(str(parent))
                parts.append(_record(str(parent), b"", stat.S_IFDIR | 0o755, 0))
        parts.append(_record(entry.path, entry.data, stat.S_IFREG | entry.mode, number))
    parts.append(_record("TRAILER!!!", b"", 0, 0))
    return b"".join(parts)


def _record(name: str, data: bytes, mode: int, number: int) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)
