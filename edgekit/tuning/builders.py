"""What compiles the batches of a search: processes of this host, or the workers of a cluster.

A worker of a cluster uses the same processes, so that a candidate that ends the compiler never ends
the worker.
"""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from edgekit.base.child import Child, ChildGone
from edgekit.tuning.batches import OWN, Batch
from edgekit.tuning.messages import BatchOrder, BuildFailure, BuiltBatch, ErrorKind

_BUILD_SECONDS = 60.0
_BUILD_SECONDS_EACH = 4.0


class Builders(Protocol):
    """Compiles orders. Any thread may ask."""

    @property
    def width(self) -> int:
        """How many orders are compiled at the same time at the moment."""

    def ask(self, order: BatchOrder) -> BuiltBatch | BuildFailure:
        """Compile an order into its folder; a failure if that ended the compiler."""

    def close(self) -> None:
        """End what compiles."""


class LocalBuilders:
    """Processes of this host, started when they are needed."""

    def __init__(self, start: Callable[[], Child], width: int) -> None:
        self.width = width
        self._start = start
        self._idle: queue.LifoQueue[Child] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._children: list[Child] = []

    def ask(self, order: BatchOrder) -> BuiltBatch | BuildFailure:
        child = self._free()
        try:
            return _answer(child, order)
        finally:
            self._idle.put(child)

    def close(self) -> None:
        with self._lock:
            for child in self._children:
                child.close()

    def _free(self) -> Child:
        """Return an idle process, or a new one: there are never more than threads that ask."""
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        child = self._start()
        with self._lock:
            self._children.append(child)
        return child


def compiled(builders: Builders, batch: Batch) -> BuiltBatch:
    """Build all candidates at once, or one by one if that ended the compiler."""
    order = BatchOrder(batch.subject, batch.choices, batch.folder / "all", batch.inputs)
    order.folder.mkdir(parents=True)
    answer = builders.ask(order)
    if isinstance(answer, BuiltBatch):
        return answer
    good, failures = [], []
    for place, choice in enumerate(batch.choices):
        alone = replace(order, choices=(choice,), folder=batch.folder / f"alone{place}")
        alone.folder.mkdir()
        tried = builders.ask(alone)
        if isinstance(tried, BuiltBatch) and not tried.failures:
            good.append(place)
        elif isinstance(tried, BuiltBatch):
            failures += [replace(failure, place=place) for failure in tried.failures]
        else:
            failures.append(replace(tried, place=place))
        shutil.rmtree(alone.folder, ignore_errors=True)
    again = replace(
        order, choices=tuple(batch.choices[p] for p in good), folder=batch.folder / "good"
    )
    again.folder.mkdir()
    rest = builders.ask(again)
    if not isinstance(rest, BuiltBatch):
        lost = [replace(rest, place=place) for place in (OWN, *good)]
        empty = batch.folder / "nothing.so"
        return BuiltBatch(empty, batch.inputs, batch.subject.output, (), (*failures, *lost))
    functions = tuple(
        replace(f, place=f.place if f.place == OWN else good[f.place]) for f in rest.functions
    )
    more = [replace(f, place=f.place if f.place == OWN else good[f.place]) for f in rest.failures]
    return replace(rest, functions=functions, failures=(*failures, *more))


def _answer(child: Child, order: BatchOrder) -> BuiltBatch | BuildFailure:
    seconds = _BUILD_SECONDS + _BUILD_SECONDS_EACH * len(order.choices)
    try:
        answer = child.ask(order, seconds)
    except ChildGone as gone:
        kind: ErrorKind = "timeout" if gone.silent else "compile"
        return BuildFailure(OWN, kind, gone.reason)
    assert isinstance(answer, BuiltBatch)
    return answer
