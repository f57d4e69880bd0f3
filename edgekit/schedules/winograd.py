"""3x3 convolutions after Winograd (packed_winograd.py): when they pay, and in which order.

An image is done in bands, of as many rows of tiles as leave their turned pixels in the near cache.
For each panel of channels of a band come its 36 matrix products, each with a register tile as in
product.py, and then the way back, in registers, with all that follows the convolution.

It pays where the products are most of the work and the weights, four times as many, still fit into
a cache: from 32 channels on each side up to 4 MiB of turned weights. With fewer channels turning
takes longer than is won; with more, and with images so small that a weight is used a few times
only, reading the weights does. What images that are no multiple of the tile have too much counts
too. Errors are two to four times those of the convolution itself, a few parts in a million of the
largest result; an infinity becomes NaN in the rest of its tile.
"""

from __future__ import annotations

import math

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from edgekit.schedules.blocks import (
    Block,
    blocks_of,
    extent_of,
    inline_into_last,
    largest_divisor,
    run_parallel,
    vectorize_panel,
)
from edgekit.schedules.generic import order_loops
from edgekit.schedules.machine import Machine
from edgekit.schedules.packed import PAD, Window
from edgekit.schedules.packed_winograd import (
    COLUMNS,
    COLUMNS_BACK,
    PATCH,
    PRODUCT,
    ROWS,
    ROWS_BACK,
    TILE,
    tiles_of,
)
from edgekit.schedules.product import copy_padding

_FEWEST_CHANNELS = 32
_FEWEST_TILES = 12
_MOST_BYTES = 4 << 20
_MOST_PRODUCTS = 0.45
"""Of those that the convolution itself takes."""
_UNROLLED_SUMS = 4
_MOST_VECTORS = 4
_SPARE_REGISTERS = 2


def pays(
    size: tuple[int, int], inputs: int, outputs: int, window: Window, machine: Machine
) -> bool:
    """For a 3x3 convolution with results of so many lines and pixels."""
    if window.strides != (1, 1) or window.dilation != (1, 1) or window.channels_first:
        return False
    if inputs % machine.lanes or outputs % machine.lanes:
        return False
    tiles = math.prod(tiles_of(size))
    products = PATCH * PATCH * tiles / (9 * math.prod(size))
    return (
        min(inputs, outputs) >= _FEWEST_CHANNELS
        and tiles >= _FEWEST_TILES
        and products <= _MOST_PRODUCTS
        and PATCH * PATCH * inputs * outputs * 4 <= _MOST_BYTES
    )


def panel_width(size: tuple[int, int], inputs: int, outputs: int, machine: Machine) -> int:
    """Channels that are summed up together: with as many tiles as divide a band's they fill the
    registers."""
    down, across = tiles_of(size)
    tiles = _rows_at_once(down, across, inputs, machine) * across
    widths = [
        vectors * machine.lanes
        for vectors in range(1, _MOST_VECTORS + 1)
        if outputs % (vectors * machine.lanes) == 0
    ]
    return max(widths, key=lambda width: _share(tiles, width, machine))


def _share(tiles: int, width: int, machine: Machine) -> float:
    """Products a load, of a register tile."""
    vectors = width // machine.lanes
    count = _tiles_at_once(tiles, width, machine)
    return vectors * count / (vectors + count)


def _tiles_at_once(tiles: int, width: int, machine: Machine) -> int:
    vectors = width // machine.lanes
    return largest_divisor(tiles, (machine.registers - vectors - _SPARE_REGISTERS) // vectors)


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
    rows = _rows_at_once(down, across, product.reduced[0], machine)

    band, y = schedule.split(y, [None, rows * TILE])
    panel, lane = schedule.split(channels, [None, width])
    y, line = schedule.split(y, [None, TILE])
    x, pixel = schedule.split(x, [None, TILE])
    schedule.reorder(n, band, panel, y, x, line, pixel, lane)
    around = run_parallel(schedule, [n, band], product.work, machine)
    for name in (COLUMNS_BACK, ROWS_BACK):
        schedule.compute_at(blocks[name].handle, x, preserve_unit_loops=True)
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
        _turn_back(schedule, blocks[name].handle, machine)
    vectorize_panel(schedule, lane, machine)
    for loop in (pixel, line):
        schedule.unroll(loop)
    return True


def _rows_at_once(down: int, across: int, inputs: int, machine: Machine) -> int:
    """Rows of tiles in a band: as many as the cache holds, and every core has a band."""
    held = machine.near_bytes // (PATCH * PATCH * inputs * 4 * across)
    return largest_divisor(down, max(1, min(held, down // machine.cores)))


def _turn_the_image(
    schedule: s_tir.Schedule, rows: SBlockRV, columns: SBlockRV, machine: Machine
) -> None:
    """A vector of channels of one tile at a time, from one transformation into the other."""
    y, x, tile, channels = schedule.get_loops(columns)[-4:]
    vector, lane = schedule.split(channels, [None, machine.lanes])
    schedule.reorder(tile, vector, y, x, lane)
    schedule.compute_at(rows, vector, preserve_unit_loops=True)
    schedule.set_scope(rows, 0, "local")
    _unroll(schedule, [y, x], lane)
    *others, lane = schedule.get_loops(rows)[-4:]
    _unroll(schedule, others, lane)


def _turn_back(schedule: s_tir.Schedule, block: SBlockRV, machine: Machine) -> None:
    one, y, x, channels = schedule.get_loops(block)[-4:]
    vector, lane = schedule.split(channels, [None, machine.lanes])
    schedule.reorder(vector, one, y, x, lane)
    schedule.set_scope(block, 0, "local")
    _unroll(schedule, [vector, one, y, x], lane)


def _unroll(schedule: s_tir.Schedule, loops: list[LoopRV], lane: LoopRV) -> None:
    schedule.vectorize(lane)
    for loop in loops:
        schedule.unroll(loop)


def _sum_up(schedule: s_tir.Schedule, product: Block, tiles: int, machine: Machine) -> None:
    """The matrix products of one panel of a band, tile by tile in registers."""
    y, x, tile, channels, depth = schedule.get_loops(product.handle)[-5:]
    width = extent_of(schedule, channels)
    at_once = _tiles_at_once(tiles, width, machine)
    depth, unrolled = schedule.split(
        depth, [None, largest_divisor(extent_of(schedule, depth), _UNROLLED_SUMS)]
    )
    tile, neighbour = schedule.split(tile, [None, at_once])
    vector, lane = schedule.split(channels, [None, machine.lanes])
    schedule.reorder(y, x, tile, depth, unrolled, neighbour, vector, lane)
    written = schedule.cache_write(product.handle, 0, "local")
    schedule.reverse_compute_at(written, tile, preserve_unit_loops=True)
    _unroll(schedule, [unrolled, neighbour, vector], lane)
    *_, neighbour, channels = schedule.get_loops(written)
    vectorize_panel(schedule, channels, machine)
    schedule.unroll(neighbour)
    schedule.decompose_reduction(product.handle, depth)
