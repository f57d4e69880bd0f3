"""Long sums for few results, such as a layer on one vector, means and norms: a group of threads
shares each sum.

Each thread adds up every so many terms, the threads' sums are added in the group's memory, and
neighbours read neighbouring numbers.
"""

from __future__ import annotations

import math

from tvm import s_tir

from edgekit.compiler.gpu.each import bind_each
from edgekit.compiler.schedules.blocks import Block, blocks_of
from edgekit.compiler.schedules.generic import inline_what_is_small

_LEAST_SUM = 128
"""Terms of a sum that is worth a group."""
_MOST_RESULTS = 2048
"""Results beyond which a thread for each keeps every GPU at work."""
_SHARERS = 64
"""Threads that share a sum."""


def schedule_rows(schedule: s_tir.Schedule, threads: int) -> bool:
    """Schedule a kernel with long sums for few results."""
    blocks = blocks_of(schedule)
    if not blocks or not any(map(_is_long, blocks)):
        return False
    inline_what_is_small(schedule, blocks)
    for block in blocks_of(schedule) or []:
        if _is_long(block):
            _share(schedule, block, min(_SHARERS, threads))
        else:
            bind_each(schedule, block, threads)
    return True


def _is_long(block: Block) -> bool:
    results = math.prod(block.spatial)
    return math.prod(block.reduced) >= _LEAST_SUM and results <= _MOST_RESULTS


def _share(schedule: s_tir.Schedule, block: Block, sharers: int) -> None:
    loops = list(schedule.get_loops(block.handle))
    results, sums = loops[: len(block.spatial)], loops[len(block.spatial) :]
    if not results:
        results = [schedule.add_unit_loop(sums[0])]
    whole = schedule.fuse(*results) if len(results) > 1 else results[0]
    terms = schedule.fuse(*sums) if len(sums) > 1 else sums[0]
    _, sharer = schedule.split(terms, [None, sharers])
    schedule.bind(whole, "blockIdx.x")
    schedule.bind(sharer, "threadIdx.x")
