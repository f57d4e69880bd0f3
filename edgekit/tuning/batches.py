"""A batch of candidates of one kernel on its way from a proposer to a device and back."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.compiler.schedules.choices import Choice
from edgekit.tuning.messages import BuiltBatch, ErrorKind, Subject, Timed

OWN = -1
"""The place of the rule's own way."""


@dataclass(frozen=True)
class Result:
    """One candidate of a kernel and its time relative to the rule's own; None if it failed."""

    choice: Choice
    ratio: float | None
    error: ErrorKind | None = None


@dataclass
class Batch:
    """Candidates of one kernel under way."""

    number: int
    subject: Subject
    choices: tuple[Choice, ...]
    folder: Path
    inputs: Path
    built: BuiltBatch | None = None
    device: str = ""
    own_us: float | None = None
    timed: dict[int, Timed] = field(default_factory=dict)
    """Results by place."""
    blamed: set[int] = field(default_factory=set)
    """Places under way when a session ended: retried once, after all others."""
    own_failures: int = 0
    """How often a session ended while the rule's own way was measured."""
    drift: tuple[float, float] | None = None
    repeated: bool = False
    seconds: float = 0.0
    """Time spent on devices."""
    broken: str = ""
    """The reason why nothing could be measured."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to measure; without choices, the rule's own way counts."""
        if self.broken:
            return True
        return not self.left() and (bool(self.choices) or self.own_us is not None)

    def left(self) -> list[int]:
        """Return the built places without a result, blamed ones last."""
        assert self.built is not None
        places = [f.place for f in self.built.functions if f.place != OWN]
        missing = [place for place in places if place not in self.timed]
        return sorted(missing, key=lambda place: place in self.blamed)

    def results(self) -> tuple[Result, ...]:
        """Return the result of every choice; one that was lost failed for the device."""
        return tuple(self._result(place) for place in range(len(self.choices)))

    def repeats(self) -> bool:
        """Forget the times if the device drifted, once. Return whether they are measured again."""
        if self.drift is None or self.repeated:
            return False
        self.repeated, self.drift = True, None
        for place in [p for p, timed in self.timed.items() if timed.microseconds is not None]:
            del self.timed[place]
        return bool(self.left())

    def clean_up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _result(self, place: int) -> Result:
        timed = self.timed.get(place) or Timed(place, None, "device")
        if timed.microseconds is None or self.own_us is None:
            return Result(self.choices[place], None, timed.error)
        return Result(self.choices[place], timed.microseconds / self.own_us, timed.error)
