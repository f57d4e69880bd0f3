"""How many batches of a search are under way: enough that no device waits, and no more.

The devices set the pace, however many compilers there are: what is proposed later is proposed with
more results.
"""

from __future__ import annotations

import math
import threading

_AHEAD = 1
"""Batches that are built ahead for each device, so that none waits for a compiler."""
_WEIGHT = 0.1
"""The weight of the newest time in an average."""
_SPARE = 1.25
"""Times vary: more is compiled at the same time than the averages ask for."""


class Pace:
    """The batches that a number of devices needs under way. Any thread may use it."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._lock = threading.Lock()
        self._building: float | None = None
        self._running: float | None = None

    def built(self, seconds: float) -> None:
        """Take the time in which a batch was compiled."""
        with self._lock:
            self._building = _average(self._building, seconds)

    def ran(self, seconds: float) -> None:
        """Take the time in which a device measured a batch."""
        with self._lock:
            self._running = _average(self._running, seconds)

    def most(self, width: int) -> int:
        """Return the number of batches under way, where `width` can be compiled at once."""
        with self._lock:
            building, running = self._building, self._running
        compiling = self._devices
        if building is not None and running:
            compiling = math.ceil(_SPARE * self._devices * building / running)
        return self._devices * (1 + _AHEAD) + min(width, max(compiling, 1))


def _average(before: float | None, new: float) -> float:
    return new if before is None else (1 - _WEIGHT) * before + _WEIGHT * new
