"""Kernels that call LLVM functions for single numbers: they use several cores, but no vectors."""

from __future__ import annotations

from tvm import s_tir

from edgekit.compiler.schedules.blocks import blocks_of, called_in, run_parallel
from edgekit.compiler.schedules.machine import Machine

ONE_BY_ONE = frozenset(
    f"tirx.{name}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cosh", "fmod"),
        *("hypot", "ldexp", "log1p", "nextafter", "popcount", "sinh"),
    )
)
"""Functions that LLVM has for single numbers only, in at least one precision."""


def schedule_scalar(schedule: s_tir.Schedule, machine: Machine) -> bool:
    blocks = blocks_of(schedule) or []
    if all(called_in(schedule, block).isdisjoint(ONE_BY_ONE) for block in blocks):
        return False
    for block in blocks:
        loops = list(schedule.get_loops(block.handle))[: len(block.spatial)]
        if loops:
            run_parallel(schedule, loops, block.work, machine)
    return True
