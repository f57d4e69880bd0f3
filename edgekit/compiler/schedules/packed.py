"""Convolutions and matrix products over packed weights, as TIR with block names for the rules.

Weights come as panels: (columns / tile, …, sum, tile), so that the innermost loop reads one
contiguous run of numbers. They are packed when the model is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import te, tirx

from edgekit.compiler.schedules.problem import NOTE, Window, convolution_problem, dense_problem
from edgekit.compiler.schedules.tiles import Tile

PAD, CONVOLUTION, DEPTHWISE, DENSE, ALONG, CROP = (
    f"edgekit_{name}" for name in ("pad", "convolution", "depthwise", "dense", "along", "crop")
)
"""Names of blocks."""

TileOf = Callable[[int, int], Tile]
"""A function from lines and pixels to the register tile that computes them."""


def pack_columns(weight: np.ndarray, width: int) -> np.ndarray:
    """Pack (…, columns) as (columns / width, …, width); zeros fill the last panel."""
    columns = weight.shape[-1]
    missing = -columns % width
    filled = np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, missing)])
    panels = filled.reshape(*weight.shape[:-1], -1, width)
    return np.ascontiguousarray(np.moveaxis(panels, -2, 0))


def convolution(
    data: Any, weight: Any, window: Window, groups: int, channels: int, tile_of: TileOf
) -> Any:
    """Convolve `data` (N, H, W, C) with `weight` (O / tile, KH, KW, C / groups, tile)."""
    batch, height, width, _ = size = _size(data, window)
    panels, rows, columns, inputs, tile = (int(extent) for extent in weight.shape)
    (down, right), (skip_y, skip_x) = window.strides, window.dilation
    out_height, out_width = output_size((height, width), (rows, columns), window)
    # Where lines are a single pixel, the image is transposed.
    lying = out_width == 1 < out_height
    pixels = tile_of(*((1, out_height) if lying else (out_height, out_width))).pixels
    more_y = -out_height % pixels if lying else 0
    more_x = 0 if lying else -out_width % pixels
    top, left, bottom, end = window.padding
    longer = (top, left, bottom + more_y * down, end + more_x * right)
    padded = copied(data, size, replace(window, padding=longer))
    ky = te.reduce_axis((0, rows), "ky")
    kx = te.reduce_axis((0, columns), "kx")
    ci = te.reduce_axis((0, inputs), "ci")
    per_group = channels // groups

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        first = tirx.floordiv(o, per_group) * inputs if groups > 1 else 0
        value = padded[n, y * down + ky * skip_y, x * right + kx * skip_x, first + ci]
        panel, lane = tirx.floordiv(o, tile), tirx.floormod(o, tile)
        return te.sum(value * weight[panel, ky, kx, ci, lane], axis=[ky, kx, ci])

    problem = convolution_problem(data.shape, (rows, columns, inputs), window, groups, channels)
    shape = (batch, out_height + more_y, out_width + more_x, panels * tile)
    return _crop(
        te.compute(shape, element, name=CONVOLUTION, attrs={NOTE: problem.text}),
        (batch, out_height, out_width, channels),
    )


def depthwise(data: Any, weight: Any, window: Window) -> Any:
    """Convolve `data` (N, H, W, C) with `weight` (KH, KW, C), a kernel per channel."""
    batch, height, width, channels = size = _size(data, window)
    rows, columns, _ = (int(extent) for extent in weight.shape)
    padded = copied(data, size, window)
    (down, right), (skip_y, skip_x) = window.strides, window.dilation
    out_height, out_width = output_size((height, width), (rows, columns), window)
    ky = te.reduce_axis((0, rows), "ky")
    kx = te.reduce_axis((0, columns), "kx")

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        value = padded[n, y * down + ky * skip_y, x * right + kx * skip_x, c]
        return te.sum(value * weight[ky, kx, c], axis=[ky, kx])

    return te.compute((batch, out_height, out_width, channels), element, name=DEPTHWISE)


def along(data: Any, weight: Any, window: Window) -> Any:
    """Convolve `data` (N, H, W, C) with `weight` (O, KH, KW, C), for so few results of each pixel
    that they fill no vector: a vector holds channels of the image instead."""
    batch, height, width, _ = size = _size(data, window)
    channels, rows, columns, inputs = (int(extent) for extent in weight.shape)
    padded = copied(data, size, window)
    (down, right), (skip_y, skip_x) = window.strides, window.dilation
    lines, pixels = output_size((height, width), (rows, columns), window)
    ky = te.reduce_axis((0, rows), "ky")
    kx = te.reduce_axis((0, columns), "kx")
    ci = te.reduce_axis((0, inputs), "ci")

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        value = padded[n, y * down + ky * skip_y, x * right + kx * skip_x, ci]
        return te.sum(value * weight[o, ky, kx, ci], axis=[ky, kx, ci])

    return te.compute((batch, lines, pixels, channels), element, name=ALONG)


def dense_along(data: Any, weight: Any) -> Any:
    """Multiply `data` (…, K) by `weight` (columns, K), for few columns."""
    k = te.reduce_axis((0, int(weight.shape[1])), "k")
    shape = (*(int(extent) for extent in data.shape[:-1]), int(weight.shape[0]))

    def element(*index: Any) -> Any:
        *row, column = index
        number = (*row, k)
        return te.sum(data[number] * weight[column, k], axis=k)

    return te.compute(shape, element, name=ALONG)


def few(columns: int, depth: int, lanes: int) -> bool:
    """Return whether vectors along the sum are fuller than vectors of columns."""
    return 4 * columns <= lanes and depth >= 2 * lanes


def dense(data: Any, weight: Any, columns: int, tile_of: TileOf) -> Any:
    """Multiply `data` (…, K) by `weight` (columns / tile, K, tile)."""
    *lines, pixels, depth = (int(extent) for extent in data.shape)
    panels, _, tile = (int(extent) for extent in weight.shape)
    given = data
    more = -pixels % tile_of(math.prod(lines), pixels).pixels
    if more:
        data = te.compute(
            (*lines, pixels + more, depth),
            lambda *i: tirx.if_then_else(i[-2] < pixels, given[i], tirx.const(0, data.dtype)),
            name=PAD,
        )
    k = te.reduce_axis((0, depth), "k")

    def element(*indices: Any) -> Any:
        *row, o = indices
        number = (*row, k)
        panel, lane = tirx.floordiv(o, tile), tirx.floormod(o, tile)
        return te.sum(data[number] * weight[panel, k, lane], axis=k)

    problem = dense_problem(given.shape, depth, columns)
    product = te.compute(
        (*lines, pixels + more, panels * tile), element, name=DENSE, attrs={NOTE: problem.text}
    )
    return _crop(product, (*lines, pixels, columns))


def _size(data: Any, window: Window) -> tuple[int, int, int, int]:
    """Return (N, H, W, C) for either layout."""
    n, second, third, fourth = (int(extent) for extent in data.shape)
    return (n, third, fourth, second) if window.channels_first else (n, second, third, fourth)


def copied(data: Any, size: tuple[int, int, int, int], window: Window) -> Any:
    """Return the input channels last, with its padding and zeros between its pixels; return it
    unchanged if it is in that form."""
    (down, right), (top, left, bottom, end) = window.spread, window.padding
    if not any(window.padding) and window.spread == (1, 1) and not window.channels_first:
        return data
    batch, height, width, channels = size
    lines, pixels = (height - 1) * down + 1, (width - 1) * right + 1

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        y, x = y - top, x - left
        line, pixel = tirx.floordiv(y, down), tirx.floordiv(x, right)
        value = data[(n, c, line, pixel) if window.channels_first else (n, line, pixel, c)]
        inside = []
        if top or bottom:
            inside += [y >= 0, y < lines]
        if left or end:
            inside += [x >= 0, x < pixels]
        inside += [tirx.floormod(y, down) == 0] if down > 1 else []
        inside += [tirx.floormod(x, right) == 0] if right > 1 else []
        if not inside:
            return value
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, data.dtype))

    shape = (batch, top + lines + bottom, left + pixels + end, channels)
    return te.compute(shape, element, name=PAD)


def _crop(computed: Any, shape: tuple[int, ...]) -> Any:
    """Drop the excess of the last panel and of the last tile of a line."""
    if tuple(int(extent) for extent in computed.shape) == shape:
        return computed
    return te.compute(shape, lambda *i: computed[i], name=CROP)


def output_size(size: tuple[int, int], kernel: tuple[int, int], window: Window) -> tuple[int, int]:
    """Return the lines and pixels of a convolution's result."""
    top, left, bottom, right = window.padding
    lines, pixels = (
        ((extent - 1) * spread + 1 + around - (taps - 1) * dilation - 1) // stride + 1
        for extent, spread, around, taps, dilation, stride in zip(
            size,
            window.spread,
            (top + bottom, left + right),
            kernel,
            window.dilation,
            window.strides,
            strict=True,
        )
    )
    return lines, pixels
