"""Compilers and devices that only wait: what is left is the cost of the cluster."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.base.child import Child
from edgekit.base.tensors import TensorSpec
from edgekit.cluster.task import Task
from edgekit.compiler.schedules.choices import Choice, ProductChoice
from edgekit.tuning.batches import OWN, Batch
from edgekit.tuning.messages import (
    BatchDone,
    BatchOrder,
    Begun,
    BuildFailure,
    BuiltBatch,
    BuiltFunction,
    Subject,
    Taken,
    Timed,
)

LIBRARY_BYTES = 100_000
"""The size of a batch's library, as batches of convolutions have."""
OUTPUT = TensorSpec("output", "float32", (1,))


@dataclass(frozen=True)
class Nothing(Task[None]):
    """A task that is overhead only."""

    def run(self) -> None:
        return


@dataclass(frozen=True)
class Wait(Task[BuiltBatch | BuildFailure]):
    """A compiler that waits, and leaves a library and an input."""

    order: BatchOrder
    seconds: float

    def run(self) -> BuiltBatch:
        time.sleep(self.seconds)
        library = self.order.folder / "batch.so"
        library.write_bytes(os.urandom(LIBRARY_BYTES))
        (self.order.inputs / "data.npy").write_bytes(bytes(LIBRARY_BYTES))
        places = range(-1, len(self.order.choices))
        functions = tuple(BuiltFunction(place, f"f{place}", ("data",)) for place in places)
        return BuiltBatch(library, self.order.inputs, OUTPUT, functions, ())


class WaitingDevice(Child):
    """A device that waits for each candidate, and counts how long it was busy."""

    def __init__(self, seconds: float) -> None:
        super().__init__("")
        self.busy: list[tuple[float, float]] = []
        """Beginnings and ends of the batches."""
        self._seconds = seconds
        self._messages: list[Any] = []

    def send(self, message: object) -> None:
        assert isinstance(message, BuiltBatch)
        assert message.library.stat().st_size == LIBRARY_BYTES
        began = time.monotonic()
        self._messages = [Taken(1, ""), Timed(OWN, 100.0)]
        for function in message.functions[1:]:
            time.sleep(self._seconds)
            self._messages += [Begun(function.place), Timed(function.place, 50.0)]
        self._messages.append(BatchDone(100.0, 100.0))
        self.busy.append((began, time.monotonic()))

    def receive(self, seconds: float = 0.0) -> Any:
        return self._messages.pop(0)


class Candidates:
    """A search with a number of batches, and a ledger of what came back."""

    is_late = False

    def __init__(self, batches: int, size: int, folder: Path) -> None:
        self.results: Counter[tuple[int, int]] = Counter()
        self.failed: list[str] = []
        self.done = threading.Event()
        self._batches = batches
        self._size = size
        self._folder = folder
        self._number = 0
        self._finished = 0

    @property
    def finished(self) -> int:
        return self._finished

    def next(self) -> Batch | None:
        if self._number == self._batches:
            return None
        self._number += 1
        subject = Subject("kernel", "kernel", "", "", (), OUTPUT)
        choices: tuple[Choice, ...] = tuple(
            ProductChoice(unrolled=place + 2) for place in range(self._size)
        )
        folder = self._folder / f"batch{self._number}"
        return Batch(self._number, subject, choices, folder, self._folder / "inputs")

    def finish(self, batch: Batch) -> None:
        for place, result in enumerate(batch.results()):
            self.results[batch.number, place] += 1
            if result.error is not None:
                timed = batch.timed.get(place)
                self.failed.append(f"{result.error}: {timed.reason if timed else 'lost'}")
        batch.clean_up()
        self._finished += 1

    def drop(self, batches: list[Batch]) -> None:
        pass
