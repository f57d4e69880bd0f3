"""RESIZE_BILINEAR of stored values as LiteRT computes it: fractions of ten bits, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from edgekit.base.arrays import Array

_BITS = 10
_ONE = 1 << _BITS


def taps(extent: int, result: int, mode: str) -> Array:
    """Return the two old places of each new one, and the weight of the second in 1024ths."""
    scale = (_ONE * extent + result // 2) // result
    if mode == "align_corners" and result > 1:
        scale = (_ONE * (extent - 1) + (result - 1) // 2) // (result - 1)
    places = np.arange(result, dtype="int64") * scale
    if mode == "half_pixel":
        places = places + scale // 2 - _ONE // 2
    # Towards zero, as C divides.
    lower = np.maximum(np.trunc(places / _ONE).astype("int64"), 0)
    upper = np.minimum(np.trunc((places + _ONE - 1) / _ONE).astype("int64"), extent - 1)
    return np.stack([lower, upper, places - lower * _ONE]).astype("int32")


def resized(image: te.Tensor, rows: te.Tensor, columns: te.Tensor) -> te.Tensor:
    """Resize an image with its channels last, at the taps of both axes."""
    shape = [image.shape[0], rows.shape[1], columns.shape[1], image.shape[3]]

    def at(n: Any, y: Any, x: Any, c: Any) -> Any:
        total: Any = None
        for row in (0, 1):
            for column in (0, 1):
                weight = _weight(rows, y, row) * _weight(columns, x, column)
                value = image(n, rows[row, y], columns[column, x], c).astype("int32")
                total = value * weight if total is None else total + value * weight
        half, zero = 1 << (2 * _BITS - 1), tirx.const(0, "int32")
        rounded = total + tirx.Select(total > zero, half, -half)
        return tirx.truncdiv(rounded, tirx.const(1 << (2 * _BITS), "int32")).astype(image.dtype)

    return te.compute(shape, at, name="litert")


def _weight(taps: te.Tensor, place: Any, which: int) -> Any:
    return taps[2, place] if which else tirx.const(_ONE, "int32") - taps[2, place]
