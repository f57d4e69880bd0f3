"""Convolutions and matrix products of int8 over packed weights.

As in product.py, a tile of pixels and channels is summed up in registers, and subsequent steps
(above all the rounding back to int8) are applied to it before it is written. One step of the sum is
one instruction of dot_products.py for every vector of the tile. The image is copied a few lines at
a time into the instruction's format: padded, and raised or widened where necessary.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm import s_tir, tirx
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
from edgekit.compiler.schedules.dot_instructions import tensor_intrinsics
from edgekit.compiler.schedules.dot_products import DotProduct
from edgekit.compiler.schedules.generic import order_loops
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed_int8 import CONVOLUTION, DENSE, IMAGE
from edgekit.compiler.schedules.tiles import choose_pairs_of, choose_pixels

_UNROLLED_SUMS = 4
_LINES_AT_ONCE = 8


def schedule_int8(schedule: s_tir.Schedule, machine: Machine) -> bool:
    blocks = blocks_of(schedule) or []
    product = next((block for block in blocks if block.name in (CONVOLUTION, DENSE)), None)
    if product is None:
        return False
    others = inline_into_last(schedule, blocks, product)
    if others is None:
        return False
    last = blocks[-1].handle
    if blocks[-1] is product:
        last = schedule.cache_write(product.handle, 0, "local")
    weight = [int(extent) for extent in schedule.get(product.handle).reads[1].source.shape]
    dot = _instruction_for(weight, machine)
    if dot is None:
        return False
    vectors = weight[-len(dot.weights) - 1]
    width = vectors * dot.lanes
    paired = dot.pixels > 1
    heavy = math.prod(weight) > machine.near_bytes

    wanted = tuple(extent_of(schedule, loop) for loop in schedule.get_loops(last))
    cut = wanted != product.spatial
    *outer, y, x, channels = _lines_and_pixels(schedule, last)
    lines, pixels = (1, *product.spatial)[-3:-1]
    if pixels == 1:
        (y, x), (lines, pixels) = (x, y), (pixels, lines)
    steps = math.prod(product.reduced) // dot.group
    if paired:
        tile = choose_pairs_of(pixels, width, machine)
    else:
        tile = choose_pixels(lines, pixels, width, steps, narrowed(machine))
    y, line = schedule.split(y, [None, tile.lines])
    x, pixel = schedule.split(x, [None, tile.pixels])
    panel, lane = schedule.split(channels, [None, width])
    if heavy:
        schedule.reorder(*outer, panel, y, x, line, pixel, lane)
        around = run_parallel(schedule, [*outer, panel], product.work, machine)
        inner = x
    else:
        lines_at_once = largest_divisor(
            extent_of(schedule, y), max(_LINES_AT_ONCE // tile.lines, 1)
        )
        bands, y = schedule.split(y, [None, lines_at_once])
        schedule.reorder(*outer, bands, y, x, panel, line, pixel, lane)
        around = run_parallel(schedule, [*outer, bands], product.work, machine)
        inner = panel
    if cut or paired:
        _stage(schedule, product, last, inner, replace(machine, lanes=dot.lanes))
    schedule.compute_at(product.handle, inner, preserve_unit_loops=True)
    schedule.set_scope(product.handle, 0, "local")
    for block in others:
        if block.name == IMAGE:
            _copy_image(schedule, block, None if heavy else around, dot, machine)
        else:
            order_loops(schedule, block, machine)
    _sum_up(schedule, product, dot)
    if not cut or (paired and wanted[-1] == product.spatial[-1]):
        vectorize_panel(schedule, lane, machine)
        schedule.unroll(pixel)
        schedule.unroll(line)
    return True


def _instruction_for(weight: list[int], machine: Machine) -> DotProduct | None:
    """Return the instruction that the weights were packed for."""
    instructions = [dot for dot in (machine.dot, machine.matrix) if dot is not None]
    fitting = (dot for dot in instructions if weight[-len(dot.weights) :] == list(dot.weights))
    return next(fitting, None)


def narrowed(machine: Machine) -> Machine:
    """Return the machine with the lanes of its dot products: AVX without AVX2 has fewer."""
    if machine.dot is None:
        return machine
    return replace(machine, lanes=machine.dot.lanes, multiplies_by_lane=False)


def _lines_and_pixels(schedule: s_tir.Schedule, last: SBlockRV) -> list[LoopRV]:
    """Return the loops of a result, with at least lines, pixels and channels."""
    loops = list(schedule.get_loops(last))
    while len(loops) < 3:
        loops.insert(0, schedule.add_unit_loop(loops[0]))
    return loops


def _stage(
    schedule: s_tir.Schedule, product: Block, last: SBlockRV, inner: LoopRV, machine: Machine
) -> None:
    """Write a tile with excess elements to memory, and read the wanted ones from memory: a test per
    number would take the registers apart. Do the same for a tile whose registers have several
    pixels."""
    made = schedule.get(product.handle).writes[0].source
    reads = [region.source for region in schedule.get(last).reads]
    (place,) = (i for i, source in enumerate(reads) if source.same_as(made))
    stage = schedule.cache_read(last, place, "global")
    schedule.compute_at(stage, inner, preserve_unit_loops=True)
    *tile, lane = schedule.get_loops(stage)[-len(product.spatial) :]
    vectorize_panel(schedule, lane, machine)
    for loop in tile:
        schedule.unroll(loop)


def _copy_image(
    schedule: s_tir.Schedule,
    image: Block,
    around: LoopRV | None,
    dot: DotProduct,
    machine: Machine,
) -> None:
    if around is not None:
        schedule.compute_at(image.handle, around, preserve_unit_loops=True)
    *lines, channels = schedule.get_loops(image.handle)[-len(image.spatial) :]
    if around is None and len(lines) > 1:
        run_parallel(schedule, lines[:-1], image.work, machine)
    vectorize_innermost(schedule, channels, machine)
    if (
        len(image.spatial) == 4 and dot.pixels == 1
    ):  # One line for all: groups run from pixel to pixel.
        each = image.spatial[-1]
        schedule.transform_layout(
            image.handle, ("write", 0), lambda n, y, x, c: (n, y, x * each + c)
        )


def _sum_up(schedule: s_tir.Schedule, product: Block, dot: DotProduct) -> None:
    """Compute the sum of one tile in registers."""
    loops = schedule.get_loops(product.handle)[-len(product.spatial) - len(product.reduced) :]
    *tile, columns = loops[: len(product.spatial)]
    sums = loops[len(product.spatial) :]
    *window, word = sums[: -len(dot.places)]
    places = sums[-len(dot.places) :]
    vector, lane = schedule.split(columns, [None, dot.lanes])
    together = [lane]
    if dot.pixels > 1:
        tile[-1], pixel = schedule.split(tile[-1], [None, dot.pixels])
        together = [pixel, lane]
        _pair_sums(schedule, product, dot)
    steps = largest_divisor(extent_of(schedule, word), _UNROLLED_SUMS)
    word, unrolled = schedule.split(word, [None, steps])
    schedule.reorder(*window, word, unrolled, *tile, vector, *together, *places)
    for loop in (*tile, vector, unrolled):
        schedule.unroll(loop)
    zeros = schedule.decompose_reduction(product.handle, (*window, word)[0])
    step, nothing = tensor_intrinsics(dot)
    schedule.tensorize(schedule.get_loops(zeros)[-len(together)], nothing)
    schedule.tensorize(together[0], step)


def _pair_sums(schedule: s_tir.Schedule, product: Block, dot: DotProduct) -> None:
    """Store sums in the instruction's order: all lanes of one pixel, then those of the next."""

    def place(*index: Any) -> list[Any]:
        *outer, pixel, column = index
        pairs = [tirx.floordiv(pixel, dot.pixels), tirx.floordiv(column, dot.lanes)]
        within = [tirx.floormod(pixel, dot.pixels), tirx.floormod(column, dot.lanes)]
        return [*outer, *pairs, *within]

    schedule.transform_layout(product.handle, ("write", 0), place)
