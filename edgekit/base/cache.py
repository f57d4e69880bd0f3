"""Caches finished builds by their key, for all processes of this user.

An entry is a folder that appears whole, in one step. A lock per key, which the kernel frees with
its process, keeps two processes from making the same entry twice. Entries are not trusted: callers
check the hashes of a bundle from the cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.base.decode import decode_json, encode
from edgekit.base.files import (
    exclusive_lock,
    replace_directory,
    scratch_directory,
    storage_errors,
    sweep_leftovers,
    try_lock,
    write_atomically,
)
from edgekit.base.paths import cache_dir

EntryKind = Literal["build", "unpacked", "library", "source", "conversion"]
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CacheEntry:
    key: str
    kind: str
    """The kind: "build", "unpacked" (a bundle from its .zip), "library" for boards, "source" of a
    library, "conversion" (a PyTorch program as ONNX), or "twin image"."""
    title: str
    size: int
    """The size in bytes."""
    created: float
    """The time in seconds since 1970, as is `used`."""
    used: float


@dataclass(frozen=True)
class Pruned:
    removed: tuple[CacheEntry, ...]
    in_use: tuple[CacheEntry, ...]
    """Entries that were not removed because a process uses them."""

    @property
    def freed(self) -> int:
        return sum(entry.size for entry in self.removed)


class BuildCache:
    def __init__(self, root: Path | None = None) -> None:
        self.root = cache_dir() / "builds" if root is None else root

    @contextmanager
    def locked(self, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Lock this key against other processes; StorageError if the cache can't be used."""
        lock = self._lock(key)
        with storage_errors("use the build cache", lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            self._entries.mkdir(exist_ok=True)
            sweep_leftovers(self._entries)
            holding = exclusive_lock(lock, on_wait)
            holding.__enter__()
        try:
            yield
        finally:
            holding.__exit__(None, None, None)

    def find(self, key: str) -> Path | None:
        """Return the folder stored under this key. The caller has to check it."""
        entry = self._entries / key
        if not (entry / "entry.json").is_file():
            return None
        with suppress(OSError):  # a read-only cache is still good to read from
            os.utime(entry / "entry.json")
        return self.content(key)

    def content(self, key: str) -> Path:
        """Return the path of this key's folder, whether it exists or not."""
        return self._entries / key / "content"

    @contextmanager
    def storing(self, key: str, kind: EntryKind, title: str) -> Iterator[Path]:
        """Fill the folder that `find` will return. Hold the key's lock."""
        record = encode(_Record(kind, title, time.time()))
        with (
            storage_errors("write to the build cache", self.root),
            replace_directory(self._entries / key) as folder,
        ):
            (folder / "content").mkdir()
            yield folder / "content"
            write_atomically(folder / "entry.json", json.dumps(record))

    def forget(self, key: str) -> None:
        """Drop an entry that turned out to be damaged. Hold the key's lock."""
        with storage_errors("remove from the build cache", self.root):
            self._remove(key)

    def scratch(self) -> AbstractContextManager[Path]:
        """Make a temporary folder for intermediate files on the cache's file system."""
        return scratch_directory(self.root / "work")

    def entries(self) -> tuple[CacheEntry, ...]:
        """List every entry, the most recently used first."""
        with storage_errors("read the build cache", self.root):
            found = [
                self._describe(folder)
                for folder in (self._entries.iterdir() if self._entries.is_dir() else ())
                if _KEY.fullmatch(folder.name)
            ]
        return tuple(sorted(found, key=lambda entry: (-entry.used, entry.key)))

    def size(self) -> int:
        return sum(entry.size for entry in self.entries())

    def prune(self, *, older_than: float | None = None, max_bytes: int | None = None) -> Pruned:
        """Prune as `prune_entries` does, and remove the leftovers of killed processes."""
        pruned = prune_entries(
            self.entries(),
            lambda entry: self.remove_unless_in_use(entry.key),
            older_than=older_than,
            max_bytes=max_bytes,
        )
        self.sweep()
        return pruned

    @property
    def _entries(self) -> Path:
        return self.root / "entries"

    def _lock(self, key: str) -> Path:
        return self.root / "locks" / f"{key}.lock"

    def sweep(self) -> None:
        """Remove the leftovers of killed processes, and the locks of unfinished builds."""
        with storage_errors("tidy the build cache", self.root):
            for folder in (self._entries, self.root / "work"):
                if folder.is_dir():
                    sweep_leftovers(folder)
            for lock in (self.root / "locks").glob("*.lock"):
                if not (self._entries / lock.stem).exists():
                    held = try_lock(lock)
                    if held is not None:
                        lock.unlink()
                        os.close(held)

    def remove_unless_in_use(self, key: str) -> bool:
        lock = self._lock(key)
        with storage_errors("remove from the build cache", lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            held = try_lock(lock)
            if held is None:
                return False
            try:
                self._remove(key)
                lock.unlink()
            finally:
                os.close(held)
        return True

    def _remove(self, key: str) -> None:
        # Renamed first, so that a kill in the middle can't leave half an entry under its key.
        doomed = self._entries / f".{key}.000000000000.edgekit-tmp"
        with suppress(FileNotFoundError):
            (self._entries / key).rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _describe(self, folder: Path) -> CacheEntry:
        kind, title, created, used = "?", "?", 0.0, 0.0
        with suppress(OSError, ValueError):  # a damaged entry is still listed, to be pruned
            file = folder / "entry.json"
            record = decode_json(_Record, file.read_bytes(), ignore_unknown=True)
            used = file.stat().st_mtime
            kind, title, created = record.kind, record.title, record.created
        return CacheEntry(folder.name, kind, title, _size_of(folder), created, used)


@dataclass(frozen=True)
class _Record:
    """The file that describes an entry."""

    kind: str
    title: str
    created: float


def prune_entries(
    entries: Iterable[CacheEntry],
    remove: Callable[[CacheEntry], bool],
    *,
    older_than: float | None,
    max_bytes: int | None,
) -> Pruned:
    """Remove entries unused for `older_than` seconds, then the least recently used ones until no
    more than `max_bytes` are left. `remove` returns False for an entry in use, which stays."""
    oldest = None if older_than is None else time.time() - older_than
    kept = 0
    removed: list[CacheEntry] = []
    in_use: list[CacheEntry] = []
    for entry in sorted(entries, key=lambda entry: (-entry.used, entry.key)):
        too_old = oldest is not None and entry.used < oldest
        too_much = max_bytes is not None and kept + entry.size > max_bytes
        if not too_old and not too_much:
            kept += entry.size
        elif remove(entry):
            removed.append(entry)
        else:
            in_use.append(entry)
            kept += entry.size
    return Pruned(tuple(removed), tuple(in_use))


def _size_of(folder: Path) -> int:
    """Return the bytes that removing the folder frees, going by file sizes."""
    total = 0
    for current, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):  # another process prunes
                total += (Path(current) / name).lstat().st_size
    return total
