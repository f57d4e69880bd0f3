"""The time of each step of a benchmark run, as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgekit.base.decode import Count, Most
from edgekit.base.roof import Limits
from edgekit.store.fields import Name, Word, Words

_MOST_STEPS = 20_000
_Calls = Annotated[tuple[Count, ...], Most(200_000, "calls")]


@dataclass(frozen=True)
class RunStep:
    """One step of the program that was measured."""

    name: Name
    """The name in the library."""
    kind: Word
    layers: Annotated[tuple[Words, ...], Most(_MOST_STEPS, "layers")]
    """The model's own names of the layers that it computes; empty if unknown."""
    owner: Words
    """The backend whose library runs it; empty for edgekit's own kernels."""
    bytes: Count | None
    """The bytes that it reads and writes; None if unknown."""
    operations: Count | None
    """Its additions and multiplications; None if unknown."""
    reads: Annotated[tuple[Count, ...], Most(_MOST_STEPS, "steps")] | None
    """The steps whose results it reads, by their places; None if unknown."""
    calls: float
    """Calls per inference."""
    time: Count
    """The time of one inference in all its calls, in nanoseconds or in the run's own unit of cycles
    or instructions: the median of the profiled inferences."""


@dataclass(frozen=True)
class RunTimeline:
    """One inference: three lists with an entry for each call, in order."""

    nanoseconds: Count
    """The duration of the inference, with what is between its steps."""
    steps: _Calls
    """The places of the steps in the list of all."""
    starts: _Calls
    durations: _Calls

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.starts) == len(self.durations):
            raise ValueError("its lists differ in length")


@dataclass(frozen=True)
class RunProfile:
    inferences: Count
    """The number of profiled inferences."""
    steps: Annotated[tuple[RunStep, ...], Most(_MOST_STEPS, "steps")]
    timeline: Annotated[tuple[RunTimeline, ...], Most(100, "inferences")] = ()
    """Some of them in full."""
    limits: Limits | None = None
    """What the hardware can do at most; None if that was not measured."""

    def __post_init__(self) -> None:
        count = len(self.steps)
        if any(step >= count for one in self.timeline for step in one.steps):
            raise ValueError("its timeline holds a step that is not in the list")
        if any(read >= place for place, s in enumerate(self.steps) for read in s.reads or ()):
            raise ValueError("a step reads what comes after it")
