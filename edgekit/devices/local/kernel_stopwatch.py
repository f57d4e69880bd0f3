"""Times each kernel as TVM's virtual machine calls it."""

from __future__ import annotations

import statistics
import time
from collections import Counter

_GO_ON = 0


class KernelStopwatch:
    """Times kernels. A kernel's time excludes the kernels that it calls."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._inferences: list[Counter[str]] = []
        """Time of each kernel, by inference."""
        self._open: list[list[int]] = []
        """Start of each open call, and the time spent in the kernels that it called."""

    def begin_inference(self) -> None:
        self._inferences.append(Counter())

    def called(self, function: object, name: str, before: bool, *rest: object) -> int:
        """Record a call's start or end; the instrument of TVM's virtual machine."""
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

    def report(self) -> list[dict[str, object]]:
        """Return the times in the form that the agent on a board sends."""
        return [
            {
                "name": name,
                "calls": calls,
                "nanoseconds": int(statistics.median(taken[name] for taken in self._inferences)),
            }
            for name, calls in self._calls.items()
        ]
