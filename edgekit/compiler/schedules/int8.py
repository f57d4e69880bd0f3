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
from tvm.s_tir.schedule import LoopRV

from edgekit.compiler.schedules.blocks import Block, extent_of, largest_divisor
from edgekit.compiler.schedules.dot_instructions import tensor_intrinsics
from edgekit.compiler.schedules.dot_products import DotProduct
from edgekit.compiler.schedules.generic import order_loops
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.packed_int8 import CONVOLUTION, DENSE, IMAGE
from edgekit.compiler.schedules.product import (
    Panels,
    copy_padding,
    find_product,
    finish_tile,
    in_tiles,
    stage_tile,
)
from edgekit.compiler.schedules.tiles import Tile, choose_pairs_of, choose_pixels

_UNROLLED_SUMS = 4
_LINES_AT_ONCE = 8


def schedule_int8(schedule: s_tir.Schedule, machine: Machine) -> bool:
    product = find_product(schedule, CONVOLUTION, DENSE)
    if product is None:
        return False
    block = product.block
    weight = [int(extent) for extent in schedule.get(block.handle).reads[1].source.shape]
    dot = _instruction_for(weight, machine)
    if dot is None:
        return False
    vectors = weight[-len(dot.weights) - 1]
    width = vectors * dot.lanes
    paired = dot.pixels > 1
    steps = math.prod(block.reduced) // dot.group

    def tile_for(lines: int, pixels: int) -> Tile:
        if paired:
            return choose_pairs_of(pixels, width, machine)
        return choose_pixels(lines, pixels, width, steps, narrowed(machine))

    panels = Panels(width, math.prod(weight) > machine.near_bytes, _LINES_AT_ONCE)
    tiling = in_tiles(schedule, product, panels, tile_for, machine)
    cut = tiling.wanted != block.spatial
    if cut or paired:
        stage_tile(schedule, product, tiling.inner, replace(machine, lanes=dot.lanes))
    schedule.compute_at(block.handle, tiling.inner, preserve_unit_loops=True)
    schedule.set_scope(block.handle, 0, "local")
    for other in product.others:
        if other.name == IMAGE:
            _copy_image(schedule, other, tiling.around, dot, machine)
        else:
            order_loops(schedule, other, machine)
    _sum_up(schedule, block, dot)
    if not cut or (paired and tiling.wanted[-1] == block.spatial[-1]):
        finish_tile(schedule, tiling, machine)
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


def _copy_image(
    schedule: s_tir.Schedule,
    image: Block,
    around: LoopRV | None,
    dot: DotProduct,
    machine: Machine,
) -> None:
    copy_padding(schedule, image, around, machine)
    if len(image.spatial) == 4 and dot.pixels == 1:
        # One line for all: groups run from pixel to pixel.
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
