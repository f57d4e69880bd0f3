"""The roof of a run: the most that its steps reached, beside which each of them is judged.

It is no limit of the hardware, which may do more: that is measured by a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgekit.base.measurer import Measurer

JUDGED: frozenset[Measurer | None] = frozenset({"hardware", "engine"})
"""The measurers whose times have a roof: an emulator's tells nothing of a board."""
SHORTEST_SECONDS = 1e-6
"""The shortest step that counts: of a shorter one, calling and timing it are too large a part."""


@dataclass(frozen=True)
class Work:
    """What a step does, and how long it takes."""

    operations: int
    bytes: int
    seconds: float

    @property
    def intensity(self) -> float:
        """The operations for each byte."""
        return self.operations / self.bytes

    @property
    def rate(self) -> float:
        """The operations a second."""
        return self.operations / self.seconds

    @property
    def bandwidth(self) -> float:
        """The bytes a second."""
        return self.bytes / self.seconds


@dataclass(frozen=True)
class Limits:
    """What small loops reached on a device: the limit of its hardware, or near it."""

    threads: int
    float32: float
    """Additions and multiplications a second in float32."""
    integers: float
    """Additions and multiplications a second in small integers."""
    bytes: float
    """Bytes read from memory a second."""

    def __post_init__(self) -> None:
        rates = (self.float32, self.integers, self.bytes)
        if self.threads < 1 or not all(0 < rate < 1e18 for rate in rates):
            raise ValueError("its limits are no rates")


@dataclass(frozen=True)
class Roof:
    operations: float
    """The most operations a second."""
    bytes: float
    """The most bytes a second."""

    def at(self, intensity: float) -> float:
        """Return the most operations a second of a step with so many for each byte."""
        return min(self.operations, self.bytes * intensity)

    def share(self, work: Work) -> float:
        """Return what a step reaches of it."""
        return min(work.rate / self.at(work.intensity), 1.0)


def known_work(operations: int | None, moved: int | None, seconds: float) -> Work | None:
    """Return the work of a step; None if it is unknown, none, or too short to be judged."""
    if not operations or not moved or seconds < SHORTEST_SECONDS:
        return None
    return Work(operations, moved, seconds)


def roof_of(works: Iterable[Work]) -> Roof | None:
    """Return the roof of a run; None if the work of no step is known."""
    found = tuple(works)
    if not found:
        return None
    return Roof(max(one.rate for one in found), max(one.bandwidth for one in found))
