"""All other kernels: element-wise steps, pooling, softmax, reductions, moves.

Steps that move or change single elements become part of their reader, unless they would be computed
many times and are expensive. Each remaining block gets its loops in the order results, sums, the
last axis of the results: that axis is contiguous in memory and is computed a vector at a time. A
sum along the last axis itself is computed as one partial sum per lane of a vector, and these are
added up. The rest of a line that vectors don't divide is a shorter vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import ScheduleError
from tvm.s_tir.schedule import LoopRV
from tvm.sym import Analyzer

from edgekit.compiler.passes.vector_math import FORMULAS
from edgekit.compiler.schedules.blocks import (
    Block,
    blocks_of,
    called_in,
    extent_of,
    in_vectors,
    largest_divisor,
    run_parallel,
    vectorize_innermost,
)
from edgekit.compiler.schedules.choices import GenericChoice, on_its_cores
from edgekit.compiler.schedules.machine import Machine

_SMALL = 60
"""The most nodes of an expression that is repeated for each reader."""
_MOST_ROWS, _MOST_LANES = 32, 16
"""The largest tile of a transposition: as many lines of the cache as there are lanes."""
_DEAR = frozenset(f"tirx.{name}" for name in (*FORMULAS, "sqrt", "rsqrt"))
_SUMS_AT_ONCE = 4
"""Vectors of partial sums of a single result, so that none waits for the one before it."""


def schedule_generic(
    schedule: s_tir.Schedule, machine: Machine, choice: GenericChoice | None = None
) -> bool:
    choice = choice or GenericChoice()
    machine = on_its_cores(machine, choice.parallel)
    machine = replace(machine, lanes=choice.lanes or machine.lanes)
    blocks = blocks_of(schedule)
    if not blocks:
        return False
    if not choice.steps_apart:
        inline_what_is_small(schedule, blocks)
    for block in blocks_of(schedule) or []:
        order_loops(schedule, block, machine)
    return True


def inline_what_is_small(schedule: s_tir.Schedule, blocks: list[Block]) -> None:
    """Let steps become part of their readers, where that repeats no expensive work."""
    for block in blocks[:-1]:
        if not block.reduced and _is_worth_repeating(schedule, block, blocks):
            _inline(schedule, block)


def _inline(schedule: s_tir.Schedule, block: Block) -> None:
    try:
        schedule.compute_inline(block.handle)
    except ScheduleError:
        # A block that is no plain function of its indices, such as a scatter, stays.
        return


def _is_worth_repeating(schedule: s_tir.Schedule, block: Block, blocks: list[Block]) -> bool:
    """Return whether computing an element where it is read costs no more than storing it."""
    names = [schedule.get(reader).name_hint for reader in schedule.get_consumers(block.handle)]
    readers = [other for other in blocks if other.name in names]
    dear = _is_dear(schedule, block)
    if dear and any(_is_dear(schedule, reader) for reader in readers):
        # TVM takes long to simplify one such function of another, and nothing is gained.
        return False
    if len(readers) == 1 and readers[0].work <= block.work:
        return True
    return _size(schedule, block) <= _SMALL and not dear


def _size(schedule: s_tir.Schedule, block: Block) -> int:
    """Return the size of a block's expression with all that became part of it: one that is read
    twice and reads twice doubles from step to step."""
    count = 0

    def more(node: object) -> None:
        nonlocal count
        count += 1

    tvm_ffi.structural_walk(schedule.get(block.handle).body, more)
    return count


def _is_dear(schedule: s_tir.Schedule, block: Block) -> bool:
    return not called_in(schedule, block).isdisjoint(_DEAR)


def order_loops(schedule: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """Order loops as results, sums, the results' last axis; share the first, vectorise the last."""
    loops = list(schedule.get_loops(block.handle))
    results, sums = loops[: len(block.spatial)], loops[len(block.spatial) :]
    if not results:
        # TVM makes no partial sums of a tensor without axes.
        return
    if not sums and (tile := _transposed_tile(schedule, block)):
        _transpose(schedule, block, tile, machine)
    elif not sums:
        if block.spatial[-1] % machine.lanes and _is_one_line(schedule, block):
            count = _adjacent_axes(block.spatial, machine.lanes)
            results[-count:] = [schedule.fuse(*results[-count:])]
        *outer, last = results
        if outer:
            run_parallel(schedule, outer, block.work, machine)
        vectorize_innermost(schedule, last, machine)
    elif block.spatial[-1] >= machine.lanes // 2:
        _sum_side_by_side(schedule, block, machine)
    else:
        _sum_along(schedule, block, machine)


def _is_one_line(schedule: s_tir.Schedule, block: Block) -> bool:
    """Return whether a block reads each tensor element by element, in the order in which it writes
    its own: all axes are then one."""
    body = schedule.get(block.handle)
    variables = [each.var for each in body.iter_vars]
    regions = [*body.reads, *body.writes]
    shape = regions[-1].source.shape
    return all(
        len(region.region) == len(variables)
        and bool(tvm_ffi.structural_equal(region.source.shape, shape))
        and _reads_at(region, variables)
        for region in regions
    )


def _reads_at(region: Any, variables: Sequence[Any]) -> bool:
    """Return whether the last indices of a region are these variables."""
    last = list(region.region)[-len(variables) :]
    return len(last) == len(variables) and all(
        each.min.same_as(variable) for each, variable in zip(last, variables, strict=True)
    )


def _sum_side_by_side(schedule: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """Compute many sums at once, one in each lane."""
    loops = list(schedule.get_loops(block.handle))
    *outer, last = loops[: len(block.spatial)]
    sums = loops[len(block.spatial) :]
    if extent_of(schedule, last) > 2 * machine.lanes:
        panel, last = in_vectors(schedule, last, machine.lanes)
        outer.append(panel)
    schedule.reorder(*outer, *sums, last)
    if outer:
        run_parallel(schedule, outer, block.work, machine)
    schedule.vectorize(last)
    schedule.decompose_reduction(block.handle, sums[0])


def _sum_along(schedule: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """Compute one sum at a time, as one partial sum per lane."""
    loops = list(schedule.get_loops(block.handle))
    results, sums = loops[: len(block.spatial)], loops[len(block.spatial) :]
    line = _line_of_sums(schedule, block, sums, machine)
    extent = extent_of(schedule, line)
    width = machine.lanes
    while width > extent // 2:
        width //= 2
    if width < 4:
        if results:
            run_parallel(schedule, results, block.work, machine)
        schedule.decompose_reduction(
            block.handle, schedule.get_loops(block.handle)[len(results[:1])]
        )
        return
    if block.spatial.count(1) == len(block.spatial) and extent >= 4 * _SUMS_AT_ONCE * width:
        width *= _SUMS_AT_ONCE
    _, lane = in_vectors(schedule, line, width)
    parts = schedule.rfactor(lane, len(block.spatial))
    *before, lane = schedule.get_loops(parts)
    schedule.reorder(*before, lane)
    schedule.vectorize(lane)
    for made in (parts, block.handle) if results else ():
        run_parallel(schedule, list(schedule.get_loops(made))[: len(results)], block.work, machine)
    # The results are one loop now.
    schedule.decompose_reduction(parts, schedule.get_loops(parts)[len(results[:1])])


def _line_of_sums(
    schedule: s_tir.Schedule, block: Block, sums: Sequence[LoopRV], machine: Machine
) -> LoopRV:
    """Return the last loop of a sum, with those before it over elements that are adjacent too."""
    body = schedule.get(block.handle)
    variables = [each.var for each in body.iter_vars][-len(sums) :]
    reads = [region for region in body.reads if list(region.region)]
    adjacent = next(
        count
        for count in range(len(sums), 0, -1)
        if count == 1 or all(_reads_at(region, variables[-count:]) for region in reads)
    )
    count = _adjacent_axes(block.reduced[-adjacent:], machine.lanes)
    return schedule.fuse(*sums[-count:]) if count > 1 else sums[-1]


def _adjacent_axes(extents: Sequence[int], lanes: int) -> int:
    """Return how many of the last axes can be one line, so that TVM sees that its vectors are
    contiguous: it cancels the divisions in their indices in turn, and not always."""
    for count in range(len(extents), 1, -1):
        if _cancel(extents[-count:], lanes):
            return count
    return 1


@cache
def _cancel(extents: tuple[int, ...], lanes: int) -> bool:
    analyzer = Analyzer()
    vector, lane = (tirx.Var(name, "int64") for name in ("vector", "lane"))
    analyzer.bind(vector, ir.Range(0, max(math.prod(extents) // lanes, 1)))
    analyzer.bind(lane, ir.Range(0, lanes))
    line = vector * lanes + lane
    place: Any = tirx.const(0, "int64")
    for axis, extent in enumerate(extents):
        inner = math.prod(extents[axis + 1 :])
        index = tirx.floordiv(line if axis == 0 else tirx.floormod(line, inner * extent), inner)
        place = place + analyzer.simplify(index) * inner
    return bool(tvm_ffi.structural_equal(analyzer.simplify(place), analyzer.simplify(line)))


@dataclass(frozen=True)
class _Tile:
    axis: int
    """The axis of the result that is adjacent in the source."""
    rows: int
    """Elements along that axis."""
    lanes: int
    """Elements along the last axis."""


def _transposed_tile(schedule: s_tir.Schedule, block: Block) -> _Tile | None:
    """Return the tile in which a transposition is computed; None for other blocks, and where an
    extent has no divisor that is worth it."""
    body = schedule.get(block.handle)
    reads = list(body.reads)
    if len(reads) != 1 or not list(reads[0].region):
        return None
    adjacent = list(reads[0].region)[-1].min
    for axis, each in enumerate(list(body.iter_vars)[:-1]):
        if adjacent.same_as(each.var):
            rows = largest_divisor(block.spatial[axis], _MOST_ROWS)
            lanes = largest_divisor(block.spatial[-1], _MOST_LANES)
            return _Tile(axis, rows, lanes) if rows >= 4 and lanes >= 8 else None
    return None


def _transpose(schedule: s_tir.Schedule, block: Block, tile: _Tile, machine: Machine) -> None:
    """Transpose tile by tile: a line of the cache is then read once, not once for each element."""
    loops = list(schedule.get_loops(block.handle))
    others = [loop for place, loop in enumerate(loops[:-1]) if place != tile.axis]
    rows, row = schedule.split(loops[tile.axis], [None, tile.rows])
    columns, lane = schedule.split(loops[-1], [None, tile.lanes])
    outer = [*others, rows, columns]
    schedule.reorder(*outer, row, lane)
    run_parallel(schedule, outer, block.work, machine)
    schedule.vectorize(lane)
