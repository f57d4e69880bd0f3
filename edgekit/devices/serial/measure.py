"""Turns a microcontroller's counter into results: cycles of a real core, instructions of an
emulated one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from edgekit.devices.base import Counted, StepCount
from edgekit.devices.kernel_times import KernelTime, KernelTimes, TimedInference
from edgekit.twin.microcontroller import instructions


def counted(
    cycles: Sequence[int],
    steps: Sequence[tuple[str, int]],
    clock: int,
    emulated_clock: int | None,
) -> Counted:
    """Convert the counts; `clock` is a real core's, `emulated_clock` that of a twin's timer."""
    if emulated_clock is None:
        named = tuple(StepCount(name, count) for name, count in steps)
        return Counted("cycles", tuple(cycles), named, clock)
    return Counted(
        "instructions",
        tuple(instructions(count, emulated_clock) for count in cycles),
        tuple(StepCount(name, instructions(count, emulated_clock)) for name, count in steps),
        None,
    )


def kernel_times(found: Counted) -> KernelTimes | None:
    """Return the steps as kernels, end to end, if they have times."""
    if found.clock is None or not found.steps:
        return None
    taken = [round(step.count * 1e9 / found.clock) for step in found.steps]
    ends = tuple(accumulate(taken))
    starts = (0, *ends[:-1])
    return KernelTimes(
        inferences=1,
        kernels=tuple(
            KernelTime(step.name or "?", 1, nanoseconds)
            for step, nanoseconds in zip(found.steps, taken, strict=True)
        ),
        timeline=(TimedInference(ends[-1], tuple(range(len(taken))), starts, tuple(taken)),),
    )
