"""Archives in the form that the Linux kernel unpacks as its first file system ("newc")."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_ALIGNMENT = 4


@dataclass(frozen=True)
class Entry:
    """A file that belongs to root unless it says otherwise. Its folders come by themselves."""

    path: str
    data: bytes
    mode: int = 0o644


def archive(entries: Iterable[Entry]) -> bytes:
    """Several archives one after another are one to the kernel."""
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
