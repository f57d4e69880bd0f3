"""Everything else: element-wise steps, pooling, softmax, reductions, moves.

Steps that only move or change elements become part of what reads them. Of what is left each block
gets its loops in the order results, sums, the last axis of the results: that axis lies together in
memory and is done a vector at a time. A sum along the last axis itself is done in as many partial
sums as a vector has lanes, and these are added up.
"""

from __future__ import annotations

from tvm import s_tir

from edgekit.schedules.blocks import (
    Block,
    blocks_of,
    extent_of,
    run_parallel,
    vectorize_innermost,
)
from edgekit.schedules.machine import Machine


def schedule_generic(schedule: s_tir.Schedule, machine: Machine) -> bool:
    blocks = blocks_of(schedule)
    if not blocks:
        return False
    for block in blocks:
        _schedule(schedule, block, machine)
    return True


def _schedule(schedule: s_tir.Schedule, block: Block, machine: Machine) -> None:
    loops = list(schedule.get_loops(block.handle))
    results, sums = loops[: len(block.spatial)], loops[len(block.spatial) :]
    if not results:
        return
    *outer, last = results
    if not sums:
        if outer:
            run_parallel(schedule, outer, block.work, machine)
        vectorize_innermost(schedule, last, machine)
        return
    if extent_of(schedule, last) >= machine.lanes // 2:
        width = extent_of(schedule, last)
        if width > 2 * machine.lanes:
            panel, last = schedule.split(last, [None, machine.lanes])
            outer.append(panel)
        schedule.reorder(*outer, *sums, last)
        if outer:
            run_parallel(schedule, outer, block.work, machine)
        schedule.vectorize(last)
    else:
        run_parallel(schedule, results, block.work, machine)
    schedule.decompose_reduction(block.handle, sums[0])
