"""The time of an inference by kernel, as an agent or a local worker reports it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from edgekit.base.decode import Convert, Count, Most, Range

_LONGEST_NAME = 200


def _shown(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError
    return "".join(c if c.isprintable() else "?" for c in name[:_LONGEST_NAME])


@dataclass(frozen=True)
class KernelTime:
    name: Annotated[str, Convert("the name of a kernel", _shown)]
    calls: Annotated[int, Range(1, 1 << 40)]
    """Number of calls in all profiled inferences."""
    nanoseconds: Annotated[int, Range(0, 1 << 62)]
    """Time in the kernel in one inference, all calls together: the median of the inferences."""
    device_nanoseconds: Annotated[int, Range(0, 1 << 62)] | None = None
    """Time in it by the clock of a GPU that ran it; None without one."""


_Nanoseconds = Annotated[int, Range(0, 1 << 62)]
_MOST_CALLS = Most(200_000, "calls")


@dataclass(frozen=True)
class TimedInference:
    """The timeline of one inference: three lists with an entry for each call, in order."""

    nanoseconds: _Nanoseconds
    """The duration of the inference, with what is between its steps."""
    kernels: Annotated[tuple[Count, ...], _MOST_CALLS]
    """The places of the kernels in the list of all."""
    starts: Annotated[tuple[_Nanoseconds, ...], _MOST_CALLS]
    """The start of each call since the inference began."""
    durations: Annotated[tuple[_Nanoseconds, ...], _MOST_CALLS]

    def __post_init__(self) -> None:
        if not len(self.kernels) == len(self.starts) == len(self.durations):
            raise ValueError("its lists differ in length")

    def calls(self) -> Iterator[tuple[int, int, int]]:
        """Yield kernel, start and duration of each call."""
        yield from zip(self.kernels, self.starts, self.durations, strict=True)


@dataclass(frozen=True)
class KernelTimes:
    inferences: int
    kernels: tuple[KernelTime, ...]
    timeline: tuple[TimedInference, ...] = ()
    """Some of the inferences, if a timeline was requested."""
