"""3x3 convolutions with a quarter of the multiplications, after Winograd: F(4x4, 3x3).

Six by six pixels and the kernel are transformed into 36 numbers each. Their products are summed up
over the channels, in 36 matrix products; these 36 sums give four by four results. Weights are
transformed when the model is compiled.

The interpolation points are 0, ±3/4, ±3/2 and infinity: with these the rounding errors are a third
of those of the usual 0, ±1, ±2, and all numbers are exact in binary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from tvm import te, tirx

from edgekit.compiler.schedules.packed import CROP, copied, output_size, pack_columns
from edgekit.compiler.schedules.problem import Window

ROWS, COLUMNS, PRODUCT, ROWS_BACK, COLUMNS_BACK = (
    f"edgekit_winograd_{name}"
    for name in ("rows", "columns", "product", "rows_back", "columns_back")
)
"""Names of blocks."""

TILE = 4
"""Lines and pixels of results that are computed together."""
PATCH = TILE + 2
"""Lines and pixels of the image that one tile needs."""

_IMAGE = np.array(
    [
        [81 / 64, 0, -45 / 16, 0, 1, 0],
        [0, -27 / 16, -9 / 4, 3 / 4, 1, 0],
        [0, 27 / 16, -9 / 4, -3 / 4, 1, 0],
        [0, -27 / 32, -9 / 16, 3 / 2, 1, 0],
        [0, 27 / 32, -9 / 16, -3 / 2, 1, 0],
        [0, 81 / 64, 0, -45 / 16, 0, 1],
    ]
)
_KERNEL = np.array(
    [
        [64 / 81, 0, 0],
        [-128 / 243, -32 / 81, -8 / 27],
        [-128 / 243, 32 / 81, -8 / 27],
        [32 / 243, 16 / 81, 8 / 27],
        [32 / 243, -16 / 81, 8 / 27],
        [0, 0, 1],
    ]
)
_RESULT = np.array(
    [
        [1, 1, 1, 1, 1, 0],
        [0, 3 / 4, -3 / 4, 3 / 2, -3 / 2, 0],
        [0, 9 / 16, 9 / 16, 9 / 4, 9 / 4, 0],
        [0, 27 / 64, -27 / 64, 27 / 8, -27 / 8, 1],
    ]
)
_OPPOSITES = ((1, 2), (3, 4))
"""Pairs of rows of `_IMAGE` that belong to a point and its opposite."""


def pack_kernel(weight: np.ndarray, width: int) -> np.ndarray:
    """Pack (3, 3, C, O) as (O / width, 6, 6, C, width)."""
    turned = np.einsum("ia,abco,jb->ijco", _KERNEL, weight.astype("float64"), _KERNEL)
    return pack_columns(turned.astype("float32"), width)


def tiles_of(size: tuple[int, int]) -> tuple[int, int]:
    """Return the lines and pixels of tiles that cover results of a size."""
    return -(-size[0] // TILE), -(-size[1] // TILE)


def winograd(data: Any, weight: Any, window: Window) -> Any:
    """Convolve `data` (N, H, W, C) with a `weight` of `pack_kernel`, whose panels are full."""
    batch, height, width, inputs = (int(extent) for extent in data.shape)
    panels, _, _, _, lanes = (int(extent) for extent in weight.shape)
    lines, pixels = output_size((height, width), (3, 3), window)
    down, across = tiles_of((lines, pixels))
    top, left, bottom, right = window.padding
    longer = (top, left, bottom + TILE * down - lines, right + TILE * across - pixels)
    image = copied(data, (batch, height, width, inputs), replace(window, padding=longer))

    def patch(tile: Any, y: Any, x: Any) -> tuple[Any, Any, Any]:
        n, place = tirx.floordiv(tile, down * across), tirx.floormod(tile, down * across)
        line, pixel = tirx.floordiv(place, across), tirx.floormod(place, across)
        return n, TILE * line + y, TILE * pixel + x

    tiles, outputs = batch * down * across, panels * lanes

    def lines_turned(t: Any, y: Any, x: Any, c: Any) -> Any:
        def line(r: int) -> Any:
            n, line, pixel = patch(t, r, x)
            return image[n, line, pixel, c]

        return _turned(y, line)

    rows = te.compute((tiles, PATCH, PATCH, inputs), lines_turned, name=ROWS)
    columns = te.compute(
        (PATCH, PATCH, tiles, inputs),
        lambda y, x, t, c: _turned(x, lambda s: rows[t, y, s, c]),
        name=COLUMNS,
    )
    k = te.reduce_axis((0, inputs), "k")

    def product(y: Any, x: Any, t: Any, o: Any) -> Any:
        panel, lane = tirx.floordiv(o, lanes), tirx.floormod(o, lanes)
        return te.sum(columns[y, x, t, k] * weight[panel, y, x, k, lane], axis=k)

    products = te.compute((PATCH, PATCH, tiles, outputs), product, name=PRODUCT)
    back = te.compute(
        (tiles, TILE, PATCH, outputs),
        lambda t, y, x, o: _turned_back(y, lambda r: products[r, x, t, o]),
        name=ROWS_BACK,
    )
    results = te.compute(
        (tiles, TILE, TILE, outputs),
        lambda t, y, x, o: _turned_back(x, lambda s: back[t, y, s, o]),
        name=COLUMNS_BACK,
    )

    def where(n: Any, y: Any, x: Any, o: Any) -> Any:
        tile = (n * down + tirx.floordiv(y, TILE)) * across + tirx.floordiv(x, TILE)
        return results[tile, tirx.floormod(y, TILE), tirx.floormod(x, TILE), o]

    return te.compute((batch, lines, pixels, outputs), where, name=CROP)


def _turned(row: Any, number: Callable[[int], Any]) -> Any:
    """Apply a row of `_IMAGE` to six numbers. A point and its opposite give the sum and the
    difference of the same two terms."""
    sums = [_sum(_IMAGE[0], number)]
    for point, opposite in _OPPOSITES:
        scale = _IMAGE[point][3]
        even = _sum((_IMAGE[point] + _IMAGE[opposite]) / 2, number)
        odd = _sum((_IMAGE[point] - _IMAGE[opposite]) / 2 / scale, number)
        sums += [_added(even, (scale, odd)), _added(even, (-scale, odd))]
    return _chosen(row, [*sums, _sum(_IMAGE[-1], number)])


def _turned_back(row: Any, number: Callable[[int], Any]) -> Any:
    """Apply a row of `_RESULT` to six numbers: of a point and its opposite only the sum or the
    difference is needed."""
    sums = []
    for factors in _RESULT:
        terms = [(factors[0], number(0)), (factors[-1], number(PATCH - 1))]
        for point, opposite in _OPPOSITES:
            one, other = number(point), number(opposite)
            both = one + other if factors[point] == factors[opposite] else one - other
            terms.append((factors[point], both))
        sums.append(_added(*terms))
    return _chosen(row, sums)


def _sum(factors: np.ndarray, number: Callable[[int], Any]) -> Any:
    """Return the sum, with the terms that have no factor first: the rest are multiply-adds."""
    terms = [(factor, number(place)) for place, factor in enumerate(factors)]
    return _added(*sorted(terms, key=lambda term: term[0] != 1))


def _added(*terms: Any) -> Any:
    """Return a sum of numbers and of pairs of a factor and a number."""
    pairs = [term if isinstance(term, tuple) else (1, term) for term in terms]
    products = [
        value if factor == 1 else tirx.const(float(factor), "float32") * value
        for factor, value in pairs
        if factor
    ]
    return reduce(add, products)


def _chosen(row: Any, sums: list[Any]) -> Any:
    """Select a sum by row; the row is constant at code generation, and one sum remains."""
    value = sums[-1]
    for place, other in reversed(list(enumerate(sums[:-1]))):
        value = tirx.Select(row == place, other, value)
    return value
