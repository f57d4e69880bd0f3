"""Convolutions and matrix products over packed weights.

A tile of pixels and channels is summed up in registers (tiles.py chooses its size), and the steps
after the product (a bias, a ReLU, a residual) are applied to it before it is written. Where the
weights fit into the near cache they are read again for each tile, so that the image is read once.
Where they don't, each panel is read once and the image repeatedly. Padding is copied a few lines at
a time, into the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
    vectorize_innermost,
    vectorize_panel,
)
from edgekit.compiler.schedules.choices import ProductChoice, on_its_cores
from edgekit.compiler.schedules.generic import order_loops
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed import CONVOLUTION, DENSE, PAD
from edgekit.compiler.schedules.tiles import Tile, choose_pixels, holds_two_vectors


def schedule_product(
    schedule: s_tir.Schedule, machine: Machine, choice: ProductChoice | None = None
) -> bool:
    choice = choice or ProductChoice()
    machine = on_its_cores(machine, choice.parallel)
    product = find_product(schedule, CONVOLUTION, DENSE)
    if product is None:
        return False
    block = product.block
    weight = schedule.get(block.handle).reads[1].source
    width = int(weight.shape[-1])
    heavy = choice.panels_outside
    if heavy is None:
        heavy = math.prod(int(extent) for extent in weight.shape) * 4 > machine.near_bytes

    def tile_for(lines: int, pixels: int) -> Tile:
        if choice.tile is not None and _fits(choice.tile, lines, pixels, width):
            return choice.tile
        return choose_pixels(lines, pixels, width, math.prod(block.reduced), machine)

    panels = Panels(width, heavy, choice.lines_at_once)
    tiling = in_tiles(schedule, product, panels, tile_for, machine)
    cut = tiling.wanted != block.spatial
    if cut:
        stage_tile(schedule, product, tiling.inner, machine)
    sum_up(schedule, block, tiling.inner, choice.unrolled, machine)
    for other in product.others:
        if other.name == PAD:
            copy_padding(schedule, other, tiling.around, machine)
        else:
            order_loops(schedule, other, machine)
    if not cut:
        finish_tile(schedule, tiling, machine)
    return True


def _fits(tile: Tile, lines: int, pixels: int, width: int) -> bool:
    return tile.channels == width and pixels % tile.pixels == 0 and lines % tile.lines == 0


@dataclass(frozen=True)
class Product:
    block: Block
    others: list[Block]
    """The blocks that prepare operands."""
    last: SBlockRV
    """The step that writes the results, with all that follows the product."""


@dataclass(frozen=True)
class Panels:
    """The packed weights, and how they are read."""

    width: int
    """The channels of a panel."""
    heavy: bool
    """Whether to read each panel once and the image repeatedly, instead of the reverse."""
    lines_at_once: int


@dataclass(frozen=True)
class Tiling:
    """The loops of a result that is computed in tiles."""

    around: LoopRV | None
    """The loop in which a part of the image is copied; None to copy all of it before."""
    inner: LoopRV
    """The loop over tiles."""
    tile: tuple[LoopRV, LoopRV]
    lane: LoopRV
    wanted: tuple[int, ...]
    """The extents of the result without excess elements."""


def find_product(schedule: s_tir.Schedule, *names: str) -> Product | None:
    """Return the product with one of these names and merge what follows it; None without one, or
    where that is not element-wise."""
    blocks = blocks_of(schedule) or []
    product = next((block for block in blocks if block.name in names), None)
    others = None if product is None else inline_into_last(schedule, blocks, product)
    if product is None or others is None:
        return None
    last = blocks[-1].handle
    if blocks[-1] is product:
        last = schedule.cache_write(product.handle, 0, "local")
    return Product(product, others, last)


def in_tiles(
    schedule: s_tir.Schedule,
    product: Product,
    panels: Panels,
    choose: Callable[[int, int], Tile],
    machine: Machine,
) -> Tiling:
    """Order the loops of the result for tiles, which `choose` picks for so many lines of pixels."""
    wanted = tuple(extent_of(schedule, loop) for loop in schedule.get_loops(product.last))
    *outer, y, x, channels = _lines_and_pixels(schedule, product.last)
    lines, pixels = (1, *product.block.spatial)[-3:-1]
    if pixels == 1:
        (y, x), (lines, pixels) = (x, y), (pixels, lines)
    tile = choose(lines, pixels)
    y, line = schedule.split(y, [None, tile.lines])
    x, pixel = schedule.split(x, [None, tile.pixels])
    panel, lane = schedule.split(channels, [None, panels.width])
    if panels.heavy:
        schedule.reorder(*outer, panel, y, x, line, pixel, lane)
        run_parallel(schedule, [*outer, panel], product.block.work, machine)
        return Tiling(None, x, (line, pixel), lane, wanted)
    together = largest_divisor(extent_of(schedule, y), max(panels.lines_at_once // tile.lines, 1))
    bands, y = schedule.split(y, [None, together])
    schedule.reorder(*outer, bands, y, x, panel, line, pixel, lane)
    around = run_parallel(schedule, [*outer, bands], product.block.work, machine)
    return Tiling(around, panel, (line, pixel), lane, wanted)


def _lines_and_pixels(schedule: s_tir.Schedule, last: SBlockRV) -> list[LoopRV]:
    """Return the loops of a result, with at least lines, pixels and channels."""
    loops = list(schedule.get_loops(last))
    while len(loops) < 3:
        loops.insert(0, schedule.add_unit_loop(loops[0]))
    return loops


def finish_tile(schedule: s_tir.Schedule, tiling: Tiling, machine: Machine) -> None:
    vectorize_panel(schedule, tiling.lane, machine)
    for loop in reversed(tiling.tile):
        schedule.unroll(loop)


def stage_tile(schedule: s_tir.Schedule, product: Product, inner: LoopRV, machine: Machine) -> None:
    """Write a tile with excess elements to memory, and read the wanted ones from memory: a test per
    number would take the registers apart. The same serves a tile whose registers have several
    pixels."""
    made = schedule.get(product.block.handle).writes[0].source
    reads = [region.source for region in schedule.get(product.last).reads]
    (place,) = (i for i, source in enumerate(reads) if source.same_as(made))
    stage = schedule.cache_read(product.last, place, "global")
    schedule.compute_at(stage, inner, preserve_unit_loops=True)
    *tile, lane = schedule.get_loops(stage)[-len(product.block.spatial) :]
    vectorize_panel(schedule, lane, machine)
    for loop in tile:
        schedule.unroll(loop)


def copy_padding(
    schedule: s_tir.Schedule, pad: Block, around: LoopRV | None, machine: Machine
) -> None:
    if around is not None:
        schedule.compute_at(pad.handle, around, preserve_unit_loops=True)
    *lines, channels = schedule.get_loops(pad.handle)[-len(pad.spatial) :]
    if around is None and len(lines) > 1:
        run_parallel(schedule, lines[:-1], pad.work, machine)
    vectorize_innermost(schedule, channels, machine)


def sum_up(
    schedule: s_tir.Schedule, product: Block, inner: LoopRV, unrolled: int, machine: Machine
) -> None:
    """Compute the sum of one tile in registers, below the loop `inner`."""
    schedule.compute_at(product.handle, inner, preserve_unit_loops=True)
    schedule.set_scope(product.handle, 0, "local")
    loops = schedule.get_loops(product.handle)[-len(product.spatial) - len(product.reduced) :]
    *tile, lane = loops[: len(product.spatial)]
    *window, depth = loops[len(product.spatial) :]
    count = math.prod(extent_of(schedule, loop) for loop in tile)
    size = Tile(1, count, extent_of(schedule, lane))
    depth, steps = split_depth(schedule, depth, unrolled, size, machine)
    schedule.reorder(*window, depth, *steps, *tile, lane)
    if len(steps) > 1:
        read_vectors(schedule, product, steps[0], machine)
    vectorize_panel(schedule, lane, machine)
    for loop in (*tile, *steps):
        schedule.unroll(loop)
    schedule.decompose_reduction(product.handle, (*window, depth)[0])


def split_depth(
    schedule: s_tir.Schedule, depth: LoopRV, unrolled: int, tile: Tile, machine: Machine
) -> tuple[LoopRV, list[LoopRV]]:
    """Return the loop that remains and those over unrolled steps. There are two of those where each
    step of the inner one takes a lane of a vector of the image. Twice as many steps are unrolled
    where the registers hold two such vectors of each pixel."""
    extent = extent_of(schedule, depth)
    if machine.multiplies_by_lane and (extent % machine.lanes == 0 or 1 < extent < machine.lanes):
        lanes = min(extent, machine.lanes)
        room = 2 * unrolled if holds_two_vectors(tile, machine) else unrolled
        vectors = largest_divisor(extent // lanes, max(room // lanes, 1))
        depth, *steps = schedule.split(depth, [None, vectors, lanes])
    else:
        depth, *steps = schedule.split(depth, [None, largest_divisor(extent, unrolled)])
    return depth, steps


def read_vectors(
    schedule: s_tir.Schedule, product: Block, around: LoopRV, machine: Machine
) -> None:
    """Load the image into registers a vector of channels at a time, of which each step of the sum
    takes one lane: a quarter of the loads."""
    image = schedule.cache_read(product.handle, 0, "local")
    schedule.compute_at(image, around, preserve_unit_loops=True)
    loops = schedule.get_loops(image)
    *others, channels = loops[-len(product.spatial) :]
    for loop in others:
        schedule.unroll(loop)
    vectorize_panel(schedule, channels, machine)
