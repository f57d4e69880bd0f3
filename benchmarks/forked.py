"""A function called for each item in a few forked processes; one that dies costs its own item."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    place: int | None = None
    started: float = 0.0


def run_each(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int, limit_s: float
) -> Iterator[tuple[Item, Result | str]]:
    """Yield each item with its result, or with a sentence where its process died or hung."""
    waiting = deque(range(len(items)))
    workers = [_hire(function, items) for _ in range(min(jobs, len(items)))]
    left = len(items)
    while left:
        for worker in workers:
            if worker.place is None and waiting:
                worker.place, worker.started = waiting.popleft(), time.perf_counter()
                worker.pipe.send(worker.place)
        ready = wait([worker.pipe for worker in workers if worker.place is not None], timeout=1)
        for number, worker in enumerate(workers):
            if worker.place is None:
                continue
            late = time.perf_counter() - worker.started > limit_s
            if worker.pipe not in ready and not late:
                continue
            item, outcome = items[worker.place], _outcome(worker, limit_s)
            worker.place = None
            left -= 1
            if not worker.process.is_alive():
                workers[number] = _hire(function, items)
            yield item, outcome
    for worker in workers:
        worker.pipe.send(None)
        worker.process.join(timeout=5)


def _hire(function: Callable[[Any], Any], items: Sequence[Any]) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(function, items, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(function: Callable[[Any], Any], items: Sequence[Any], pipe: Connection) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.environ["TVM_NUM_THREADS"] = "1"
    while (place := pipe.recv()) is not None:
        pipe.send(function(items[place]))


def _outcome(worker: _Worker, limit_s: float) -> Any:
    try:
        if worker.pipe.poll():
            return worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join(timeout=5)
        return f"the process died with exit code {worker.process.exitcode}"
    worker.process.kill()
    worker.process.join(timeout=5)
    return f"still running after {limit_s:.0f} s"
