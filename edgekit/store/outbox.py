"""Runs on their way into the store: a file each, written before anything else is tried.

What was measured is safe in milliseconds, without a database being opened; whoever opens the store
next takes along what waits. A store that can't be reached costs nothing but patience.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import InputError
from edgekit.files import storage_errors, write_atomically
from edgekit.paths import data_dir
from edgekit.store.documents import run_from_document

if TYPE_CHECKING:
    from edgekit.store.database import Store
    from edgekit.store.runs import BenchRun

_LARGEST = 64 << 20
_BATCH = 200
DAMAGED = ".damaged"


def outbox_folder() -> Path:
    return data_dir() / "outbox"


def post(run: BenchRun, folder: Path | None = None) -> Path:
    """On the disk when this returns."""
    place = folder or outbox_folder()
    path = place / f"{run.id}.json"
    with storage_errors("keep a measurement", path):
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(run)))
    return path


def waiting(folder: Path | None = None) -> tuple[Path, ...]:
    place = folder or outbox_folder()
    return tuple(sorted(place.glob("*.json"))) if place.is_dir() else ()


def deliver(store: Store, folder: Path | None = None) -> int:
    """Everything that waits into the store; a file goes once the store has committed it. What can't
    be read is put aside and kept."""
    from edgekit.store.bench_runs import save_bench_runs

    delivered = 0
    for batch in _batches(waiting(folder)):
        runs = {}
        for path in batch:
            with storage_errors("read a measurement that waits", path):
                run = _read(path)
            if run is not None:
                runs[path] = run
        delivered += save_bench_runs(store, list(runs.values()))
        for path in runs:
            with storage_errors("remove a measurement that is in the store", path):
                path.unlink(missing_ok=True)  # somebody else may have delivered it just now
    return delivered


def _batches(paths: tuple[Path, ...]) -> Iterator[tuple[Path, ...]]:
    for start in range(0, len(paths), _BATCH):
        yield paths[start : start + _BATCH]


def _read(path: Path) -> BenchRun | None:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("larger than any that was written")
        document = json.loads(path.read_text("utf-8"))
        if not isinstance(document, Mapping):
            raise TypeError("no document")
        return run_from_document(document)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError, InputError):
        path.replace(path.with_suffix(DAMAGED))
        return None
