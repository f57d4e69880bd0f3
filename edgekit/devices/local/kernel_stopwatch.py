"""Takes the time of each kernel as TVM's virtual machine calls it."""

from __future__ import annotations

import statistics
import time
from collections import Counter

_GO_ON = 0


class KernelStopwatch:
    """A kernel's time is without that of the kernels that it calls."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._inferences: list[Counter[str]] = []
        """What each kernel took, an inference each."""
        self._open: list[list[int]] = []
        """When each began, and how much of its time was others'."""

    def begin_inference(self) -> None:
        self._inferences.append(Counter())

    def called(self, function: object, name: str, before: bool, *rest: object) -> int:
        """What the machine is given as its instrument."""
        ended = time.perf_counter_ns()
        if before:
            self._open.append([time.perf_counter_ns(), 0])
            return _GO_ON
        started, others = self._open.pop()
        if self._open:
            self._open[-1][1] += ended - started
        self._calls[name] += 1
        self._inferences[-1][name] += ended - started - others
        return _GO_ON

    def told(self) -> list[dict[str, object]]:
        """As the agent on a board tells it."""
        return [
            {
                "name": name,
                "calls": calls,
                "nanoseconds": int(statistics.median(taken[name] for taken in self._inferences)),
            }
            for name, calls in self._calls.items()
        ]
