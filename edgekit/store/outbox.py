"""What was measured, on its way into the store: a file each, written before anything else is tried.

A measurement is safe in milliseconds, without a database being opened. The next command that opens
the store takes along what waits for it. A store that can't be reached costs nothing but patience.
Each measurement waits for the store that it was meant for, and for no other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edgekit.base.errors import InputError
from edgekit.base.files import storage_errors, sweep_leftovers, write_atomically
from edgekit.base.json_reader import read_json
from edgekit.store.address import waiting
from edgekit.store.documents import run_document, run_from_document
from edgekit.store.findings import from_document, to_text

if TYPE_CHECKING:
    from edgekit.store.database import Store
    from edgekit.store.findings import Findings
    from edgekit.store.runs import BenchRun

T = TypeVar("T")

_LARGEST = 64 << 20
_BATCH = 100
DAMAGED = ".damaged"


def post(run: BenchRun, folder: Path) -> Path:
    """Write a run into the folder of its store, on the disk when this returns."""
    return _post(folder / f"{run.id}.json", json.dumps(run_document(run)))


def post_findings(findings: Findings, folder: Path) -> Path:
    """On the disk when this returns."""
    name = f"{time.time_ns():020d}-{os.urandom(4).hex()}.json"
    return _post(folder / name, to_text(findings))


def deliver(store: Store, folder: Path) -> int:
    """Bring all runs that wait into the store; a file goes once the store has committed it. What
    can't be read is put aside and kept."""
    from edgekit.store.bench_runs import save_bench_runs

    return _delivered(folder, run_from_document, lambda runs: save_bench_runs(store, runs))


def deliver_findings(store: Store, folder: Path) -> int:
    """The same for findings; gives how many candidates and regions were new."""
    from edgekit.store.keeping import save_findings

    return _delivered(folder, from_document, lambda found: save_findings(store, found))


def _post(path: Path, text: str) -> Path:
    with storage_errors("keep a measurement", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    return path


def _delivered(
    folder: Path, understood: Callable[[object], T], save: Callable[[list[T]], int]
) -> int:
    delivered = 0
    for batch in _batches(waiting(folder)):
        found = {}
        for path in batch:
            with storage_errors("read a measurement that waits", path):
                content = _read(path, understood)
            if content is not None:
                found[path] = content
        delivered += save(list(found.values()))
        for path in found:
            with storage_errors("remove a measurement that is in the store", path):
                path.unlink(missing_ok=True)  # somebody else may have delivered it just now
    if folder.is_dir():
        with storage_errors("tidy up what waits", folder):
            sweep_leftovers(folder)  # of whoever was killed while writing
    return delivered


def _batches(paths: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    for start in range(0, len(paths), _BATCH):
        yield paths[start : start + _BATCH]


def _read(path: Path, understood: Callable[[object], T]) -> T | None:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("larger than any that was written")
        return understood(read_json(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError, InputError):
        path.replace(path.with_suffix(DAMAGED))
        return None
