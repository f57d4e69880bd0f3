"""Products of matrices, convolutions and their like: each thread computes a tile of results.

A number that a thread has read serves a row or a column of its tile, so that a tile of 4 by 4 reads
8 numbers for 16 multiplications. Sums stay in registers, and what follows the product is part of
the same kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, tirx

from edgekit.compiler.schedules.blocks import (
    Block,
    after,
    blocks_of,
    extent_of,
    inline_into_last,
    largest_divisor,
)

_LEAST_SUM = 4
"""Terms of a sum that is worth a tile."""
_LARGEST_TILE = 4
"""The most results of a thread along an axis: 16 sums and 8 numbers fit in registers."""
_ENOUGH_GROUPS = 16
"""Groups that keep a GPU at work; with fewer, smaller tiles are better."""
_UNROLLED = 9
"""The most terms of a sum whose loops are written out: a window of 3 by 3."""


def schedule_tiles(schedule: s_tir.Schedule, threads: int) -> bool:
    """Schedule a kernel with one product, for groups of so many threads."""
    blocks = blocks_of(schedule)
    if not blocks:
        return False
    sums = [block for block in blocks if block.reduced]
    if len(sums) != 1 or math.prod(sums[0].reduced) < _LEAST_SUM or not sums[0].spatial:
        return False
    (product,) = sums
    axes = _axes(schedule, product)
    if axes is None or not axes.tiled:
        return False
    following = after(schedule, blocks, product)
    prepared = inline_into_last(schedule, blocks, product)
    if prepared is None:
        return False
    for block in prepared:
        schedule.compute_inline(block.handle)
    if following:
        if blocks[-1].spatial != product.spatial:
            return False
        last = blocks[-1].handle
        schedule.set_scope(product.handle, 0, "local")
    else:
        last = schedule.cache_write(product.handle, 0, "local")
    _place(schedule, product, last, axes.tiles(product.spatial, threads), threads)
    return True


@dataclass(frozen=True)
class _Axes:
    """The results' axes along which operands are read again: at most one for each operand."""

    tiled: tuple[int, ...]

    def tiles(self, spatial: tuple[int, ...], threads: int) -> dict[int, int]:
        """Return how many results a thread computes along each axis."""
        tiles = {axis: largest_divisor(spatial[axis], _LARGEST_TILE) for axis in self.tiled}
        results = math.prod(spatial)
        while results // math.prod(tiles.values()) < _ENOUGH_GROUPS * threads:
            widest = max(tiles, key=lambda axis: (tiles[axis], -axis))
            if tiles[widest] == 1:
                break
            tiles[widest] = largest_divisor(spatial[widest], tiles[widest] - 1)
        return tiles


def _axes(schedule: s_tir.Schedule, product: Block) -> _Axes | None:
    """Find the axes in which one operand is the same for all results; None if this is no product
    of two tensors."""
    block = schedule.get(product.handle)
    variables = [one.var for one in block.iter_vars if one.iter_type == tirx.IterVar.DataPar]
    read: list[set[int]] = []

    def note(load: ir.TensorLoad) -> None:
        if not any(load.source.same_as(region.source) for region in block.writes):
            used: set[int] = set()
            for index in load.indices:
                used |= {k for k, variable in enumerate(variables) if _uses(index, variable)}
            read.append(used)

    tvm_ffi.structural_walk(block.body, (ir.TensorLoad, note))
    if len(read) != 2:
        return None
    own = (read[0] - read[1], read[1] - read[0])
    extents = product.spatial
    # The last axis of an operand lies in a row in memory; of the others, the longest.
    tiled = [
        max(axes, key=lambda axis: (axis == len(extents) - 1, extents[axis]))
        for axes in own
        if any(extents[axis] > 1 for axis in axes)
    ]
    return _Axes(tuple(tiled))


def _uses(expression: object, variable: object) -> bool:
    found: list[object] = []
    tvm_ffi.structural_walk(
        expression, (ir.Var, lambda one: found.append(one) if one.same_as(variable) else None)
    )
    return bool(found)


def _place(
    schedule: s_tir.Schedule, product: Block, last: object, tiles: dict[int, int], threads: int
) -> None:
    loops = list(schedule.get_loops(last))
    outer, inner = [], []
    for axis, loop in enumerate(loops):
        if tiles.get(axis, 1) > 1:
            loop, part = schedule.split(loop, [None, tiles[axis]])
            inner.append(part)
        outer.append(loop)
    schedule.reorder(*outer, *inner)
    whole = schedule.fuse(*outer) if len(outer) > 1 else outer[0]
    group, thread = schedule.split(whole, [None, threads])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    for loop in inner:
        schedule.unroll(loop)
    schedule.compute_at(product.handle, thread)
    own = list(schedule.get_loops(product.handle))[2:]
    terms = own[-len(product.reduced) :]
    places = own[: -len(product.reduced)]
    schedule.reorder(*terms, *places)
    left = _UNROLLED
    for loop in reversed(terms):
        if extent_of(schedule, loop) > left:
            break
        left //= max(extent_of(schedule, loop), 1)
        schedule.unroll(loop)
    for loop in places:
        schedule.unroll(loop)
    schedule.decompose_reduction(product.handle, terms[0])
