"""What has no other rule: each thread computes one result."""

from __future__ import annotations

from tvm import s_tir

from edgekit.compiler.schedules.blocks import Block, blocks_of
from edgekit.compiler.schedules.generic import inline_what_is_small


def schedule_each(schedule: s_tir.Schedule, threads: int) -> bool:
    """Schedule any kernel whose loops are known."""
    blocks = blocks_of(schedule)
    if not blocks:
        return False
    inline_what_is_small(schedule, blocks)
    for block in blocks_of(schedule) or []:
        bind_each(schedule, block, threads)
    return True


def bind_each(schedule: s_tir.Schedule, block: Block, threads: int) -> None:
    loops = list(schedule.get_loops(block.handle))
    results, sums = loops[: len(block.spatial)], loops[len(block.spatial) :]
    if not results:
        results = [schedule.add_unit_loop(loops[0] if loops else block.handle)]
    whole = schedule.fuse(*results) if len(results) > 1 else results[0]
    group, thread = schedule.split(whole, [None, threads])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    if sums:
        schedule.decompose_reduction(block.handle, sums[0])
