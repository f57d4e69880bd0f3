"""A task for a worker, and what the worker does with it.

The worker gives a task folders of its own. Files come back by their SHA-256, without those that
the client has already.
"""

from __future__ import annotations

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import distributed

from edgekit.base.errors import BuildError
from edgekit.base.failure import Failure, failure_of, raise_failure
from edgekit.base.files import free_space, replace_file, safe_join, sha256_bytes
from edgekit.base.paths import cache_dir
from edgekit.base.wording import size
from edgekit.cluster.carried import pack, unpack

ResultT = TypeVar("ResultT", covariant=True)

_LEAST_FREE = 64 << 20
"""The bytes that a worker's disk must have free for a task."""


class Task(ABC, Generic[ResultT]):
    """Something that a worker does. It is pickled, and paths in it are those of the worker."""

    @abstractmethod
    def run(self) -> ResultT: ...


@dataclass(frozen=True)
class Order:
    """A task on its way to a worker."""

    task: bytes
    folders: tuple[str, ...]
    """The names of the task's folders, whose files come back."""
    sent: tuple[tuple[str, str, str], ...] = ()
    """The files that the task reads: folder, path and hash."""
    known: frozenset[str] = frozenset()
    """Hashes of files that the client has."""


@dataclass(frozen=True)
class Delivery:
    """The result of a task: the answer, and the files in its folders."""

    answer: bytes | Failure
    files: tuple[tuple[str, str, str], ...] = ()
    """Folder, path and hash of each."""
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The files that the client lacks, by hash."""


@dataclass(frozen=True)
class Unfit:
    """The answer of a worker that can't do any task at the moment."""

    worker: str
    reason: str


def perform(order: Order, resource: str, *contents: bytes) -> Delivery | Unfit:
    """Do a task on a worker; `contents` are those of the order's files."""
    root = cache_dir() / "cluster"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if reason := _disk_is_full(root):
            return _unfit(resource, reason)
        with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as scratch:
            delivery = _performed(order, Path(scratch), contents)
            # Compilers call a full disk by many names, and the candidate is not to blame.
            reason = _disk_is_full(root)
            return _unfit(resource, reason) if reason else delivery
    except OSError as error:
        return _unfit(resource, f"its disk fails: {error}")


def receive(delivery: Delivery, folders: Mapping[str, Path]) -> Any:
    """Write the files of a delivery into the client's folders, and return the answer.

    Raises the task's own error, and BuildError for contents that are not what their hash says.
    """
    if isinstance(delivery.answer, Failure):
        raise_failure(delivery.answer)
    for digest, data in delivery.contents.items():
        if sha256_bytes(data) != digest:
            raise BuildError(
                "a worker of the cluster sent a file that is not what it announced",
                hint="look at that worker's memory and disk",
            )
    for name, relative, digest in delivery.files:
        target = safe_join(folders[name], relative)
        if digest in delivery.contents:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(target) as stream:
                stream.write(delivery.contents[digest])
    return unpack(delivery.answer, folders)


def _performed(order: Order, scratch: Path, contents: tuple[bytes, ...]) -> Delivery:
    folders = {name: scratch / name for name in order.folders}
    for folder in folders.values():
        folder.mkdir()
    for (name, relative, _), data in zip(order.sent, contents, strict=True):
        target = safe_join(scratch / name, relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    known = {**folders, **{name: scratch / name for name, _, _ in order.sent}}
    try:
        answer = unpack(order.task, known).run()
    except Exception as error:  # noqa: BLE001 - raised by the client
        return Delivery(failure_of(error))
    files, found = [], {}
    for name, folder in folders.items():
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            data = path.read_bytes()
            digest = sha256_bytes(data)
            files.append((name, path.relative_to(folder).as_posix(), digest))
            if digest not in order.known:
                found[digest] = data
    return Delivery(pack(answer, known), tuple(files), found)


def _disk_is_full(folder: Path) -> str:
    free = free_space(folder)
    return f"its disk has {size(free)} free" if free < _LEAST_FREE else ""


def _unfit(resource: str, reason: str) -> Unfit:
    """Withdraw this worker until its next look at itself."""
    worker = distributed.get_worker()
    loop = worker.loop.asyncio_loop
    asyncio.run_coroutine_threadsafe(worker.set_resources(**{resource: 0}), loop).result()
    loop.call_soon_threadsafe(worker.plugins[resource].look_again, worker)
    return Unfit(str(worker.name), reason)
