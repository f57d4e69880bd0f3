"""Convolutions and matrix products over packed weights, as TIR with names that the rules know.

Weights come as panels: (columns / tile, …, sum, tile), so that the innermost loop reads one run
of numbers from beginning to end. They are packed when the model is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

PAD, CONVOLUTION, DEPTHWISE, DENSE, CROP = (
    f"edgekit_{name}" for name in ("pad", "convolution", "depthwise", "dense", "crop")
)
"""Names of blocks."""


@dataclass(frozen=True)
class Window:
    """How a convolution walks over its input."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    dilation: tuple[int, int]


def pack_columns(weight: np.ndarray, width: int) -> np.ndarray:
    """(…, columns) to (columns / width, …, width); zeros fill the last panel."""
    columns = weight.shape[-1]
    missing = -columns % width
    filled = np.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, missing)])
    panels = filled.reshape(*weight.shape[:-1], -1, width)
    return np.ascontiguousarray(np.moveaxis(panels, -2, 0))


def convolution(
    data: Any, weight: Any, window: Window, groups: int, channels: int
) -> Any:
    """`data` (N, H, W, C), `weight` (O / tile, KH, KW, C / groups, tile)."""
    batch, height, width, _ = (int(extent) for extent in data.shape)
    panels, rows, columns, inputs, tile = (int(extent) for extent in weight.shape)
    padded = _pad(data, window.padding)
    (down, right), (skip_y, skip_x) = window.strides, window.dilation
    out_height = _extent(height + window.padding[0] + window.padding[2], rows, down, skip_y)
    out_width = _extent(width + window.padding[1] + window.padding[3], columns, right, skip_x)
    ky = te.reduce_axis((0, rows), "ky")
    kx = te.reduce_axis((0, columns), "kx")
    ci = te.reduce_axis((0, inputs), "ci")
    per_group = channels // groups

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        first = tirx.floordiv(o, per_group) * inputs if groups > 1 else 0
        value = padded[n, y * down + ky * skip_y, x * right + kx * skip_x, first + ci]
        panel, lane = tirx.floordiv(o, tile), tirx.floormod(o, tile)
        return te.sum(value * weight[panel, ky, kx, ci, lane], axis=[ky, kx, ci])

    shape = (batch, out_height, out_width, panels * tile)
    return _crop(te.compute(shape, element, name=CONVOLUTION), channels)


def depthwise(data: Any, weight: Any, window: Window) -> Any:
    """`data` (N, H, W, C), `weight` (KH, KW, C): every channel with its own kernel."""
    batch, height, width, channels = (int(extent) for extent in data.shape)
    rows, columns, _ = (int(extent) for extent in weight.shape)
    padded = _pad(data, window.padding)
    (down, right), (skip_y, skip_x) = window.strides, window.dilation
    out_height = _extent(height + window.padding[0] + window.padding[2], rows, down, skip_y)
    out_width = _extent(width + window.padding[1] + window.padding[3], columns, right, skip_x)
    ky = te.reduce_axis((0, rows), "ky")
    kx = te.reduce_axis((0, columns), "kx")

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        value = padded[n, y * down + ky * skip_y, x * right + kx * skip_x, c]
        return te.sum(value * weight[ky, kx, c], axis=[ky, kx])

    return te.compute((batch, out_height, out_width, channels), element, name=DEPTHWISE)


def dense(data: Any, weight: Any, columns: int) -> Any:
    """`data` (…, K), `weight` (columns / tile, K, tile)."""
    *leading, depth = (int(extent) for extent in data.shape)
    panels, _, tile = (int(extent) for extent in weight.shape)
    k = te.reduce_axis((0, depth), "k")

    def element(*indices: Any) -> Any:
        *row, o = indices
        panel, lane = tirx.floordiv(o, tile), tirx.floormod(o, tile)
        return te.sum(data[(*row, k)] * weight[panel, k, lane], axis=k)

    return _crop(te.compute((*leading, panels * tile), element, name=DENSE), columns)


def _pad(data: Any, padding: Sequence[int]) -> Any:
    top, left, bottom, right = padding
    if not any(padding):
        return data
    batch, height, width, channels = (int(extent) for extent in data.shape)

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= top, y < top + height, x >= left, x < left + width)
        zero = tirx.const(0, data.dtype)
        return tirx.if_then_else(inside, data[n, y - top, x - left, c], zero)

    shape = (batch, top + height + bottom, left + width + right, channels)
    return te.compute(shape, element, name=PAD)


def _crop(computed: Any, columns: int) -> Any:
    """Without what the last panel has too much."""
    *leading, width = (int(extent) for extent in computed.shape)
    if width == columns:
        return computed
    return te.compute((*leading, columns), lambda *i: computed[i], name=CROP)


def _extent(padded: int, kernel: int, stride: int, dilation: int) -> int:
    return (padded - (kernel - 1) * dilation - 1) // stride + 1
