"""Order a kernel's loops for a single in-order core.

Several sums are made at a time in registers, so that each loaded number is used for all of them.
Steps before and after a sum become part of it, and weights are stored in the order of their use. A
step that TVM can't prove right is left out: any order of loops gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, s_tir, tirx

from edgekit.compiler.passes.exact_differences import exact_differences
from edgekit.compiler.rewriting import nodes_in
from edgekit.compiler.schedules.blocks import Block, after, blocks_of, called_in, inline_into_last

_MOST_WORDS = 4
"""The most repetitions of an expression that is computed where it is read, rather than stored."""
_DEAR = frozenset(("exp", "tanh", "erf", "log", "pow", "sigmoid", "sqrt"))


@dataclass(frozen=True)
class Scheduled:
    function: Any
    panels: dict[int, int]
    """The panel width of the last axis, by parameter; panels come before all other axes."""
    has_points: bool = False
    """Whether sums of several pixels are made at the same time."""


def schedule_loops(function: Any, registers: int, constants: range) -> Scheduled:
    """Schedule the loops. `registers` hold sums and their operands; `constants` are the parameters
    that may be rearranged."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    try:
        schedule.get_sblock("root")
    except s_tir.ScheduleError:
        return Scheduled(function, {})  # unrolled, as a scatter is
    schedule = _attempt(schedule, _inline_all)
    panels: dict[int, int] = {}
    has_points = False
    blocks = blocks_of(schedule) or []
    # Start with the last block: its successors become part of it, and earlier blocks are
    # unaffected.
    for block in reversed([block for block in blocks if block.reduced]):
        found: dict[int, int] = {}
        points = _tile(schedule, block, registers).points

        def work(
            attempt: s_tir.Schedule, block: Block = block, found: dict[int, int] = found
        ) -> None:
            _sum_in_registers(attempt, blocks, block, registers, constants, found)

        changed = _attempt(schedule, work)
        if changed is not schedule:
            panels |= found
            has_points |= points > 1
        schedule = changed
    return Scheduled(schedule.mod["main"], panels, has_points)


def _attempt(schedule: s_tir.Schedule, work: Callable[[s_tir.Schedule], None]) -> s_tir.Schedule:
    attempt = schedule.copy()
    try:
        work(attempt)
    except s_tir.ScheduleError:
        return schedule
    return attempt


def _inline_all(schedule: s_tir.Schedule) -> None:
    """Inline paddings, moves and cheap steps into their readers."""
    blocks = blocks_of(schedule) or []
    for block in blocks[:-1]:
        if block.reduced or not _is_worth_repeating(schedule, block, blocks):
            continue
        try:
            schedule.compute_inline(block.handle)
        except s_tir.ScheduleError:
            continue  # a block that is no plain function of its indices (a scatter, say) stays


def _is_worth_repeating(schedule: s_tir.Schedule, block: Block, blocks: list[Block]) -> bool:
    readers = {schedule.get(r).name_hint for r in schedule.get_consumers(block.handle)}
    work = sum(reader.work for reader in blocks if reader.name in readers)
    if work <= block.work:
        return True
    is_dear = not _calls(schedule, block).isdisjoint(_DEAR)
    return not is_dear and (_is_a_move(schedule, block) or work <= _MOST_WORDS * block.work)


def _calls(schedule: s_tir.Schedule, block: Block) -> set[str]:
    return {name.rpartition(".")[2] for name in called_in(schedule, block)}


def _is_a_move(schedule: s_tir.Schedule, block: Block) -> bool:
    value = schedule.get(block.handle).body.value
    if isinstance(value, ir.Call) and str(value.op.name).endswith(".if_then_else"):
        value = value.args[1]
    return isinstance(value, (ir.TensorLoad, tirx.FloatImm, tirx.IntImm))


def _sum_in_registers(
    schedule: s_tir.Schedule,
    blocks: list[Block],
    block: Block,
    registers: int,
    constants: range,
    panels: dict[int, int],
) -> None:
    writer = _writer(schedule, blocks, block)
    if not block.spatial:
        raise s_tir.ScheduleError("one sum alone has no loop to be part of")
    loops = list(schedule.get_loops(block.handle))
    results, sums = loops[: len(block.spatial)], loops[len(block.spatial) :]
    tile = _tile(schedule, block, registers)
    _lay_out(schedule, block, tile.lines, constants, panels)
    *outer, last = results
    inner = []
    if tile.joined > 1:
        outer = [*outer[: -tile.joined], schedule.fuse(*outer[-tile.joined :])]
    if tile.points > 1:
        point_panel, point = schedule.split(outer[-1], [None, tile.points])
        outer[-1] = point_panel
        inner.append(point)
    panel, line = schedule.split(last, [None, tile.lines])
    inner.append(line)
    schedule.reorder(*outer, panel, *sums, *inner)
    for loop in inner:
        schedule.unroll(loop)
    schedule.reverse_compute_at(writer, panel)
    around = len(schedule.get_loops(writer)) - len(outer) - 1
    start = schedule.decompose_reduction(block.handle, sums[0])
    for part in (start, writer):
        for loop in list(schedule.get_loops(part))[len(outer) + 1 :][-around:]:
            if not isinstance(schedule.get(loop).extent, tirx.IntImm):
                raise s_tir.ScheduleError("a tile has a size that depends on its place")
            schedule.unroll(loop)


def _writer(schedule: s_tir.Schedule, blocks: list[Block], block: Block) -> Any:
    """Return the block that takes sums out of registers: all subsequent steps, or a copy."""
    following = after(schedule, blocks, block)
    if following and not any(other.reduced for other in following):
        attempt = schedule.copy()
        try:
            rest = inline_into_last(attempt, blocks, block)
        except s_tir.ScheduleError:
            rest = None
        if rest is not None and following[-1].work * math.prod(block.reduced) == block.work:
            inline_into_last(schedule, blocks, block)
            schedule.set_scope(block.handle, 0, "local")
            return following[-1].handle
    return schedule.cache_write(block.handle, 0, "local")


@dataclass(frozen=True)
class _Tile:
    points: int
    """Elements of the axis before the last."""
    lines: int
    """Elements of the last axis."""
    joined: int
    """The number of axes before the last that are joined into one."""


def _tile(schedule: s_tir.Schedule, block: Block, registers: int) -> _Tile:
    """Choose the tile of sums: the most use of each load, in the available registers."""
    if not block.spatial:
        return _Tile(1, 1, 1)  # one sum alone
    joined = _axes_that_join(schedule, block)
    before = block.spatial[-1 - joined : -1] if joined else block.spatial[-2:-1]
    points = math.prod(before) if not _is_guarded(schedule, block) else 1
    best = (1, 1)
    for p in _divisors(points, registers):
        for f in _divisors(block.spatial[-1], registers):
            if p * f + min(p, f) + 1 > registers:
                continue
            if _reads(p, f) < _reads(*best):
                best = (p, f)
    return _Tile(best[0], best[1], joined if best[0] > 1 else 1)


def _reads(points: int, lines: int) -> float:
    """Return the loads per multiplication; the rest of a round of the loop is shared."""
    return (points + lines + 3) / (points * lines)


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


def _is_guarded(schedule: s_tir.Schedule, block: Block) -> bool:
    return "if_then_else" in _calls(schedule, block)


def _axes_that_join(schedule: s_tir.Schedule, block: Block) -> int:
    """Return how many axes can be joined: rows and columns are one axis where a pixel's result
    depends on that pixel alone, and all other operands are the same for every pixel."""
    if len(block.spatial) != 4 or any(extent > 1 for extent in block.reduced[:-1]):
        return 1
    variables = [v.var for v in schedule.get(block.handle).iter_vars][:3]
    of_pixels = 0
    for region in schedule.get(block.handle).reads:
        starts = [place.min for place in region.region]
        if not any(_mentions(start, variables) for start in starts):
            continue
        shape = [int(extent) for extent in region.source.shape]
        same = shape[:3] == list(block.spatial[:3]) and len(shape) == 4
        straight = all(_is(start, v) for start, v in zip(starts, variables, strict=False))
        if not same or not straight or _mentions(starts[3], variables):
            return 1
        of_pixels += 1
    return 3 if of_pixels else 1


def _is(expression: Any, variable: Any) -> bool:
    """Return whether they are equal; an axis of length one may be written as 0."""
    return bool(expression.same_as(variable)) or (
        isinstance(expression, tirx.IntImm) and int(expression.value) == 0
    )


def _mentions(expression: Any, variables: list[Any]) -> bool:
    found = nodes_in(expression, ir.Var)
    return any(one.same_as(other) for one in found for other in variables)


def _lay_out(
    schedule: s_tir.Schedule,
    block: Block,
    lines: int,
    constants: range,
    panels: dict[int, int],
) -> None:
    """Store constants whose last axis is that of the results in the order of their use in tiles."""
    if lines == block.spatial[-1]:
        return
    function = schedule.mod["main"]
    last = schedule.get(block.handle).iter_vars[len(block.spatial) - 1].var
    for index, region in enumerate(schedule.get(block.handle).reads):
        places = [k for k in constants if function.params[k].same_as(region.source)]
        ranges = list(region.region)
        if not places or len(ranges) < 2 or int(region.source.shape[-1]) != block.spatial[-1]:
            continue
        if not ranges[-1].min.same_as(last) or _readers(function, region.source) != 1:
            continue
        schedule.transform_layout(
            block.handle,
            ("read", index),
            tirx.IndexMap.from_func(
                lambda *at: [at[-1] // lines, *at[:-1], at[-1] % lines],
                ndim=len(ranges),
                index_dtype="int64",
            ),
        )
        panels[places[0]] = lines


def _readers(function: Any, buffer: Any) -> int:
    return sum(load.source.same_as(buffer) for load in nodes_in(function.body, ir.TensorLoad))


def plain_loops(function: Any) -> Any:
    """Convert a scheduled function to the forms that C has: no blocks, flat buffers, indices of 32
    bits where possible, short loops unrolled."""
    target = tvm.target.Target("c")
    passes = [
        exact_differences(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.StmtSimplify(),
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        tirx.transform.Apply(lambda function: function.with_attr("target", target)),
        tirx.transform.LowerIntrin(),
    ]
    module = tvm.IRModule({"main": function})
    for step in passes:
        module = step(module)
    return module["main"]
