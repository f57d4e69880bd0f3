"""Queries on a kernel's blocks, and transformations of them, that several rules share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from edgekit.compiler.passes.whole_vectors import LANES, REST
from edgekit.compiler.schedules.machine import Machine


@dataclass(frozen=True)
class Block:
    name: str
    handle: SBlockRV
    spatial: tuple[int, ...]
    """Extents of the loops over results, in their order."""
    reduced: tuple[int, ...]
    """Extents of the loops that are summed up or otherwise reduced."""

    @property
    def work(self) -> int:
        return math.prod(self.spatial) * math.prod(self.reduced)


def blocks_of(schedule: s_tir.Schedule) -> list[Block] | None:
    """Return a kernel's blocks in execution order. Return None where a loop's extent is unknown or
    zero, or where loops are not results first, then sums."""
    found = []
    for handle in schedule.get_child_blocks(schedule.get_sblock("root")):
        block = schedule.get(handle)
        spatial: list[int] = []
        reduced: list[int] = []
        for variable in block.iter_vars:
            extent = getattr(variable.dom.extent, "value", None)
            if not extent:
                return None
            if variable.iter_type == tirx.IterVar.DataPar and not reduced:
                spatial.append(int(extent))
            elif variable.iter_type == tirx.IterVar.CommReduce:
                reduced.append(int(extent))
            else:
                return None
        # An extent that a kernel computes is no number, and equals none.
        loops = [
            getattr(schedule.get(loop).extent, "value", None) for loop in schedule.get_loops(handle)
        ]
        if loops == reduced and spatial == [1]:
            spatial = []  # a single number, which TVM gives a variable and no loop
        if loops != [*spatial, *reduced]:
            return None
        found.append(Block(str(block.name_hint), handle, tuple(spatial), tuple(reduced)))
    return found


def called_in(schedule: s_tir.Schedule, block: Block) -> set[str]:
    """Return the functions that a block calls, such as `tirx.exp`."""
    called: set[str] = set()
    tvm_ffi.structural_walk(
        schedule.get(block.handle).body,
        (ir.Call, lambda call: called.add(str(getattr(call.op, "name", "")))),
    )
    return called


def after(schedule: s_tir.Schedule, blocks: Sequence[Block], first: Block) -> list[Block]:
    """Return the blocks that read the result of `first`, directly or through others."""
    names = {first.name}
    found = []
    for block in blocks:
        producers = {schedule.get(p).name_hint for p in schedule.get_producers(block.handle)}
        if block is not first and names & producers:
            names.add(block.name)
            found.append(block)
    return found


def inline_into_last(
    schedule: s_tir.Schedule, blocks: Sequence[Block], product: Block
) -> list[Block] | None:
    """Merge what follows a product into one step; return None where it is not element-wise.

    The result is the blocks that prepare other operands of that step, which are unchanged.
    """
    following = after(schedule, blocks, product)
    if any(block.reduced for block in following) or blocks[-1] not in (product, *following):
        return None
    for block in following[:-1]:
        schedule.compute_inline(block.handle)
    return [block for block in blocks if block is not product and block not in following]


def run_parallel(
    schedule: s_tir.Schedule, loops: Sequence[LoopRV], work: int, machine: Machine
) -> LoopRV:
    """Fuse several loops into one, over all cores where the work is worth it."""
    loop = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    if machine.cores > 1 and work >= machine.parallel_work:
        schedule.parallel(loop)
    return loop


def vectorize_innermost(schedule: s_tir.Schedule, loop: LoopRV, machine: Machine) -> None:
    """Vectorise over the adjacent elements of a line."""
    extent = extent_of(schedule, loop)
    if extent == 1:
        return
    if extent > 2 * machine.lanes:
        _, loop = in_vectors(schedule, loop, machine.lanes)
    schedule.vectorize(loop)


def in_vectors(schedule: s_tir.Schedule, loop: LoopRV, lanes: int) -> tuple[LoopRV, LoopRV]:
    """Split a loop into whole vectors and a shorter last one (passes/whole_vectors.py)."""
    rest = extent_of(schedule, loop) % lanes
    vectors, lane = schedule.split(loop, [None, lanes])
    if rest:
        schedule.annotate(vectors, REST, rest)
        schedule.annotate(lane, LANES, lanes)
    return vectors, lane


def vectorize_panel(schedule: s_tir.Schedule, loop: LoopRV, machine: Machine) -> None:
    """Vectorise a run of a few vectors one after another: LLVM splits a vector of more lanes than
    the machine's, and badly where their number is no power of two."""
    extent = extent_of(schedule, loop)
    if extent > machine.lanes:
        vectors, loop = schedule.split(loop, [None, largest_divisor(extent, machine.lanes)])
        schedule.unroll(vectors)
    schedule.vectorize(loop)


def extent_of(schedule: s_tir.Schedule, loop: LoopRV) -> int:
    return int(schedule.get(loop).extent)


def largest_divisor(number: int, most: int) -> int:
    return max(d for d in range(1, min(number, most) + 1) if number % d == 0)
