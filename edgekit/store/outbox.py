"""Measurements on their way into the store: each is first written to a file.

A measurement is safe within milliseconds, before any database is opened. The next command that
opens its store delivers it. A measurement waits for one store and goes to no other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from edgekit.base.decode import encode
from edgekit.base.errors import InputError
from edgekit.base.files import storage_errors, sweep_leftovers, write_atomically
from edgekit.base.json_reader import read_json
from edgekit.store.address import waiting
from edgekit.store.database import Store
from edgekit.store.documents import run_from_document
from edgekit.store.findings import Findings, from_document, to_text
from edgekit.store.runs import BenchRun

T = TypeVar("T")

_LARGEST = 64 << 20
_BATCH = 100
DAMAGED = ".damaged"


def post(run: BenchRun, folder: Path) -> Path:
    """Write a run into the folder of its store. It is on the disk when this returns."""
    return _post(folder / f"{run.id}.json", json.dumps(encode(run)))


def post_findings(findings: Findings, folder: Path) -> Path:
    """Write findings into a folder. They are on the disk when this returns."""
    name = f"{time.time_ns():020d}-{os.urandom(4).hex()}.json"
    return _post(folder / name, to_text(findings))


def deliver(store: Store, folder: Path) -> int:
    """Deliver waiting runs to the store. Return how many were new.

    A file is removed once the store has committed it. A damaged file is renamed and kept.
    """
    from edgekit.store.bench_runs import save_bench_runs

    return _delivered(folder, run_from_document, lambda runs: save_bench_runs(store, runs))


def deliver_findings(store: Store, folder: Path) -> int:
    """Deliver waiting findings like runs. Return the number of new candidates and of regions."""
    from edgekit.store.saving import save_findings

    return _delivered(folder, from_document, lambda found: save_findings(store, found))


def _post(path: Path, text: str) -> Path:
    with storage_errors("keep a measurement", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    return path


def _delivered(folder: Path, parse: Callable[[object], T], save: Callable[[list[T]], int]) -> int:
    delivered = 0
    for batch in _batches(waiting(folder)):
        found = {}
        for path in batch:
            with storage_errors("read a waiting measurement", path):
                content = _read(path, parse)
            if content is not None:
                found[path] = content
        delivered += save(list(found.values()))
        for path in found:
            with storage_errors("remove a delivered measurement", path):
                path.unlink(missing_ok=True)  # another process may have delivered it
    if folder.is_dir():
        with storage_errors("remove unfinished measurements", folder):
            sweep_leftovers(folder)  # from a process killed while writing
    return delivered


def _batches(paths: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    for start in range(0, len(paths), _BATCH):
        yield paths[start : start + _BATCH]


def _read(path: Path, parse: Callable[[object], T]) -> T | None:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("larger than any measurement")
        return parse(read_json(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError, InputError):
        path.replace(path.with_suffix(DAMAGED))
        return None
