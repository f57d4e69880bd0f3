"""3x3 convolutions after Winograd (packed_winograd.py): when they pay, and in which order.

An image is computed in bands, each of as many rows of tiles as keep their transformed pixels in the
near cache. Each panel of channels of a band takes 36 matrix products, each with a register tile as
in product.py, and then the transformation back, in registers, with all steps after the convolution.

It pays where the products are most of the work and the weights, four times as many, still fit into
a cache: from 32 channels on each side up to 4 MiB of transformed weights, and further where vectors
are short, since products take longer with them. With fewer channels the transformation takes longer
than it saves. With more, and with images so small that a weight is used a few times only, reading
the weights does. The excess of images that are no multiple of the tile counts too. Errors are two
to four times those of the convolution itself, a few parts in a million of the largest result; an
infinity becomes NaN in the rest of its tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from edgekit.compiler.schedules.blocks import (
    Block,
    blocks_of,
    extent_of,
    inline_into_last,
    largest_divisor,
    run_parallel,
    vectorize_panel,
)
from edgekit.compiler.schedules.generic import order_loops
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import PAD
from edgekit.compiler.schedules.packed_winograd import (
    COLUMNS,
    COLUMNS_BACK,
    PATCH,
    PRODUCT,
    ROWS,
    ROWS_BACK,
    TILE,
    tiles_of,
)
from edgekit.compiler.schedules.problem import Window
from edgekit.compiler.schedules.product import copy_padding, read_vectors, split_depth
from edgekit.compiler.schedules.tiles import Tile, by_lane, most_sums

_FEWEST_TILES = 12


@dataclass(frozen=True)
class _Limits:
    fewest_channels: int
    most_bytes: int
    """The most bytes of transformed weights."""
    most_products: float
    """The most products, as a share of the convolution's own."""


_USUAL = _Limits(32, 4 << 20, 0.45)
_BY_LANE = _Limits(16, 10 << 20, 0.6)
"""The limits for short vectors, with which products take longer and all else does not."""
_UNROLLED_SUMS = 4
_MOST_VECTORS = 4


def pays(
    size: tuple[int, int], inputs: int, outputs: int, window: Window, machine: Machine
) -> bool:
    """Return whether it pays for a 3x3 convolution with results of so many lines and pixels."""
    if window.strides != (1, 1) or window.dilation != (1, 1) or window.channels_first:
        return False
    if inputs % machine.lanes or outputs % machine.lanes:
        return False
    tiles = math.prod(tiles_of(size))
    products = PATCH * PATCH * tiles / (9 * math.prod(size))
    limits = _BY_LANE if machine.multiplies_by_lane else _USUAL
    return (
        min(inputs, outputs) >= limits.fewest_channels
        and tiles >= _FEWEST_TILES
        and products <= limits.most_products
        and PATCH * PATCH * inputs * outputs * 4 <= limits.most_bytes
    )


def panel_width(size: tuple[int, int], inputs: int, outputs: int, machine: Machine) -> int:
    """Return the channels that are summed up together: with a tile count that divides a band's they
    fill the registers."""
    down, across = tiles_of(size)
    widths = [
        vectors * machine.lanes
        for vectors in range(1, _MOST_VECTORS + 1)
        if outputs % (vectors * machine.lanes) == 0
    ]

    def share(width: int) -> float:
        rows = _rows_at_once(down, across, inputs, width, machine)
        return _share(rows * across, width, machine)

    return max(widths, key=share)


def _share(tiles: int, width: int, machine: Machine) -> float:
    """Return a register tile's products per instruction or load."""
    vectors = width // machine.lanes
    count = _tiles_at_once(tiles, width, machine)
    if machine.multiplies_by_lane:
        return count * vectors / by_lane(count, vectors)
    return vectors * count / (vectors + count)


def _tiles_at_once(tiles: int, width: int, machine: Machine) -> int:
    vectors = width // machine.lanes
    return largest_divisor(tiles, most_sums(vectors, machine))


def schedule_winograd(schedule: s_tir.Schedule, machine: Machine) -> bool:
    blocks = {block.name: block for block in blocks_of(schedule) or []}
    if PRODUCT not in blocks:
        return False
    others = inline_into_last(schedule, list(blocks.values()), blocks[COLUMNS_BACK])
    if others is None:
        return False
    last = list(blocks.values())[-1].handle
    product = blocks[PRODUCT]
    width = int(schedule.get(product.handle).reads[1].source.shape[-1])
    n, y, x, channels = schedule.get_loops(last)
    down, across = tiles_of((extent_of(schedule, y), extent_of(schedule, x)))
    rows = _rows_at_once(down, across, product.reduced[0], width, machine)

    band, y = schedule.split(y, [None, rows * TILE])
    panel, vector, lane = schedule.split(channels, [None, width // machine.lanes, machine.lanes])
    y, line = schedule.split(y, [None, TILE])
    x, pixel = schedule.split(x, [None, TILE])
    schedule.reorder(n, band, panel, y, x, vector, line, pixel, lane)
    around = run_parallel(schedule, [n, band], product.work, machine)
    for name in (COLUMNS_BACK, ROWS_BACK):
        schedule.compute_at(blocks[name].handle, vector, preserve_unit_loops=True)
    schedule.compute_at(product.handle, panel, preserve_unit_loops=True)
    schedule.compute_at(blocks[COLUMNS].handle, around, preserve_unit_loops=True)
    _turn_the_image(schedule, blocks[ROWS].handle, blocks[COLUMNS].handle, machine)
    for block in others:
        if block.name == PAD:
            copy_padding(schedule, block, around, machine)
        elif block.name not in (ROWS, COLUMNS, PRODUCT, ROWS_BACK):
            order_loops(schedule, block, machine)
    _sum_up(schedule, product, rows * across, machine)
    for name in (ROWS_BACK, COLUMNS_BACK):
        _turn_back(schedule, blocks[name].handle)
    _unroll(schedule, [line, pixel], lane)
    return True


def _rows_at_once(down: int, across: int, inputs: int, width: int, machine: Machine) -> int:
    """Return the rows of tiles in a band: as many as the cache holds, with a band for every core.
    With short vectors, as many as fill the registers best."""
    held = machine.near_bytes // (PATCH * PATCH * inputs * 4 * across)
    most = max(1, min(held, down // machine.cores))
    if not machine.multiplies_by_lane:
        return largest_divisor(down, most)
    fitting = [rows for rows in range(1, most + 1) if down % rows == 0]
    return max(fitting, key=lambda rows: (_share(rows * across, width, machine), rows))


def _turn_the_image(
    schedule: s_tir.Schedule, rows: SBlockRV, columns: SBlockRV, machine: Machine
) -> None:
    """Transform a vector of channels of one tile at a time."""
    y, x, tile, channels = schedule.get_loops(columns)[-4:]
    vector, lane = schedule.split(channels, [None, machine.lanes])
    schedule.reorder(tile, vector, y, x, lane)
    schedule.compute_at(rows, vector, preserve_unit_loops=True)
    schedule.set_scope(rows, 0, "local")
    _unroll(schedule, [y, x], lane)
    *others, lane = schedule.get_loops(rows)[-4:]
    _unroll(schedule, others, lane)


def _turn_back(schedule: s_tir.Schedule, block: SBlockRV) -> None:
    *others, lane = schedule.get_loops(block)[-4:]
    schedule.set_scope(block, 0, "local")
    _unroll(schedule, others, lane)


def _unroll(schedule: s_tir.Schedule, loops: list[LoopRV], lane: LoopRV) -> None:
    schedule.vectorize(lane)
    for loop in loops:
        schedule.unroll(loop)


def _sum_up(schedule: s_tir.Schedule, product: Block, tiles: int, machine: Machine) -> None:
    """Compute the matrix products of one panel of a band, tile by tile in registers."""
    y, x, tile, channels, depth = schedule.get_loops(product.handle)[-5:]
    width = extent_of(schedule, channels)
    at_once = _tiles_at_once(tiles, width, machine)
    depth, steps = split_depth(schedule, depth, _UNROLLED_SUMS, Tile(1, at_once, width), machine)
    tile, neighbour = schedule.split(tile, [None, at_once])
    vector, lane = schedule.split(channels, [None, machine.lanes])
    schedule.reorder(y, x, tile, depth, *steps, neighbour, vector, lane)
    written = schedule.cache_write(product.handle, 0, "local")
    schedule.reverse_compute_at(written, tile, preserve_unit_loops=True)
    if len(steps) > 1:
        read_vectors(schedule, product, steps[0], machine)
    _unroll(schedule, [*steps, neighbour, vector], lane)
    *_, neighbour, channels = schedule.get_loops(written)
    vectorize_panel(schedule, channels, machine)
    schedule.unroll(neighbour)
    schedule.decompose_reduction(product.handle, depth)
