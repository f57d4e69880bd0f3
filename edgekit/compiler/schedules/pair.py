"""Products of two computed matrices: mostly attention.

The second matrix, transposed or not, is copied into panels first, the layout of constant weights.
That copy is small compared with the product, and the rest is the same register tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import s_tir, te, tirx

from edgekit.compiler.schedules.blocks import (
    extent_of,
    run_parallel,
    vectorize_innermost,
    vectorize_panel,
)
from edgekit.compiler.schedules.generic import order_loops
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import CROP, PAD
from edgekit.compiler.schedules.product import find_product, stage_tile, sum_up
from edgekit.compiler.schedules.tiles import Tile

PAIR, PANELS = "edgekit_pair", "edgekit_panels"
"""Names of blocks."""


def pair(first: Any, second: Any, orders: tuple[Sequence[int], Sequence[int]], tile: Tile) -> Any:
    """Multiply (…, M, K) by (…, K, N); axis i of a matrix is axis `orders[…][i]` of its tensor."""
    ordered_first, ordered_second = orders
    *batch, rows, depth = (int(first.shape[axis]) for axis in ordered_first)
    columns = int(second.shape[ordered_second[-1]])
    panels = -(-columns // tile.channels)
    more = -rows % tile.pixels
    data = _rows(first, ordered_first, more) if more else first
    plain = range(len(batch) + 2) if more else ordered_first

    def panel(*index: Any) -> Any:
        *outer, number, k, lane = index
        column = number * tile.channels + lane
        value = second[_places((*outer, k, column), ordered_second)]
        if columns % tile.channels == 0:
            return value
        return tirx.if_then_else(column < columns, value, tirx.const(0, "float32"))

    packed = te.compute((*batch, panels, depth, tile.channels), panel, name=PANELS)
    k = te.reduce_axis((0, depth), "k")

    def element(*index: Any) -> Any:
        *outer, row, column = index
        number, lane = (
            tirx.floordiv(column, tile.channels),
            tirx.floormod(column, tile.channels),
        )
        value = data[_places((*outer, row, k), plain)]
        panel_at = (*outer, number, k, lane)
        return te.sum(value * packed[panel_at], axis=k)

    product = te.compute((*batch, rows + more, panels * tile.channels), element, name=PAIR)
    shape = (*batch, rows, columns)
    if more == 0 and columns % tile.channels == 0:
        return product
    return te.compute(shape, lambda *i: product[i], name=CROP)


def _rows(data: Any, order: Sequence[int], more: int) -> Any:
    """Return the tensor as matrices, with rows of zeros for a last tile."""
    *batch, rows, depth = (int(data.shape[axis]) for axis in order)

    def element(*index: Any) -> Any:
        value = data[_places(index, order)]
        return tirx.if_then_else(index[-2] < rows, value, tirx.const(0, "float32"))

    return te.compute((*batch, rows + more, depth), element, name=PAD)


def _places(index: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Return the tensor's index from the matrix's index."""
    places: list[Any] = [None] * len(index)
    for axis, value in zip(order, index, strict=True):
        places[axis] = value
    return tuple(places)


def schedule_pair(schedule: s_tir.Schedule, machine: Machine) -> bool:
    product = find_product(schedule, PAIR)
    if product is None:
        return False
    block = product.block
    panels = next(other for other in product.others if other.name == PANELS)
    width = panels.spatial[-1]
    pixels = _pixels(block.spatial[-2], width, machine)
    *batch, rows, columns = schedule.get_loops(product.last)
    wanted = tuple(extent_of(schedule, loop) for loop in (*batch, rows, columns))
    rows, row = schedule.split(rows, [None, pixels])
    columns, lane = schedule.split(columns, [None, width])
    schedule.reorder(*batch, rows, columns, row, lane)
    run_parallel(schedule, [*batch, rows], block.work, machine)
    if wanted != block.spatial:
        stage_tile(schedule, product, columns, machine)
    sum_up(schedule, block, columns, _UNROLLED, machine)
    for other in product.others:
        if other.name not in (PANELS, PAD):
            order_loops(schedule, other, machine)
            continue
        *outer, across = schedule.get_loops(other.handle)
        run_parallel(schedule, outer, other.work, machine)
        vectorize = vectorize_panel if other is panels else vectorize_innermost
        vectorize(schedule, across, machine)
    if wanted == block.spatial:
        vectorize_panel(schedule, lane, machine)
        schedule.unroll(row)
    return True


_UNROLLED = 4


def _pixels(rows: int, width: int, machine: Machine) -> int:
    """Return the most rows that the registers hold and that divide the rows."""
    vectors = -(-width // machine.lanes)
    room = max((machine.registers - vectors - 2) // vectors, 1)
    return max(count for count in range(1, min(rows, room) + 1) if rows % count == 0)


def worth_packing(shape: Sequence[int], depth: int) -> bool:
    """Return whether each panel is read often enough to be worth its copy."""
    return shape[-2] >= 4 and shape[-1] >= 4 and depth >= 4 and math.prod(shape) * depth >= 4096
