"""One search: batches of candidates from a proposer within limits, with every result recorded.

`tune`, `--quick-tune` and the tuning of microcontrollers differ in the proposer and in the runner,
which takes batches with `next` and gives them back with `finish`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from edgekit.tuning.recorder import Finding, Limits, Progress, Recorder

BatchT = TypeVar("BatchT")


class Proposer(Protocol[BatchT]):
    """A space of candidates, and the order in which they are tried."""

    def next(self) -> BatchT | None:
        """Return the next candidates; None if there are none, or none before more results."""

    def drop(self, batch: BatchT) -> None:
        """Take back a batch that was not measured."""

    def learn(self, batch: BatchT) -> Sequence[Finding]:
        """Take the results of a batch, and return what is to be recorded."""

    @property
    def progress(self) -> Progress: ...


class Search(Generic[BatchT]):
    """A search under way. Any thread may use it."""

    def __init__(
        self,
        proposer: Proposer[BatchT],
        recorder: Recorder,
        limits: Limits,
        told: Callable[[BatchT], None] = lambda batch: None,
    ) -> None:
        self._began = time.monotonic()
        self._proposer = proposer
        self._recorder = recorder
        self._limits = limits
        self._told = told
        self._lock = threading.RLock()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def is_late(self) -> bool:
        return self._limits.seconds is not None and self.seconds >= self._limits.seconds

    def next(self) -> BatchT | None:
        with self._lock:
            return None if self.is_late else self._proposer.next()

    def drop(self, batches: Iterable[BatchT]) -> None:
        """Take back batches that were not measured."""
        with self._lock:
            for batch in batches:
                self._proposer.drop(batch)

    def finish(self, batch: BatchT) -> None:
        """Record the results of a batch."""
        with self._lock:
            findings = self._proposer.learn(batch)
            self._recorder.add(findings, self._proposer.progress)
            self._told(batch)
