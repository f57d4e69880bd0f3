"""LiteRT's arithmetic of stored values, element by element: functions, comparisons, resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from edgekit.base.arrays import Array
from edgekit.compiler.passes.fixed_point import FixedPoint, Multiply, fixed_point, multiply_by
from edgekit.compiler.rewriting import is_call, operator_of

SQUARE_LEFT_SHIFT = 7
"""The number of bits below the point in squared differences."""

Function = Callable[[Any, float, float, Multiply], Any]
"""A function that scales the input's distance from its zero point to the output's distance."""


def single_ratio(source: float, target: float) -> FixedPoint:
    """Return a ratio that LiteRT computes in single precision."""
    return fixed_point(float(np.float32(source) / np.float32(target)))


def leaky_relu(alpha: float) -> Function:
    def compute(value: Any, source: float, target: float, by: Multiply) -> Any:
        steep = float(np.float32(source) * np.float32(alpha))
        above = multiply_by(value, single_ratio(source, target), by)
        below = multiply_by(value, single_ratio(steep, target), by)
        return tirx.Select(value >= tirx.const(0, "int32"), above, below)

    return compute


def absolute(value: Any, source: float, target: float, by: Multiply) -> Any:
    positive = tirx.max(value, tirx.const(0, "int32") - value)
    return multiply_by(positive, single_ratio(source, target), by)


def function_of(call: Any) -> Function | None:
    """Return LiteRT's function for a call of one tensor; None where it is not in integers."""
    if is_call(call, "relax.nn.leakyrelu"):
        return leaky_relu(float(call.attrs.alpha))
    return _FUNCTIONS.get(operator_of(call))


_FUNCTIONS: Mapping[str, Function] = {"relax.abs": absolute}


def squared_difference(
    left: Any, right: Any, scales: tuple[float, float, float], by: Multiply
) -> Any:
    """Combine distances from zero points; `scales` are theirs and the result's."""
    common = 2.0 * max(scales[:2])
    total = fixed_point(common * common / (2.0 ** (2 * SQUARE_LEFT_SHIFT) * scales[2]))
    first, second = (
        multiply_by(value * (1 << SQUARE_LEFT_SHIFT), fixed_point(scale / common), by)
        for value, scale in zip((left, right), scales[:2], strict=True)
    )
    difference = first - second
    return multiply_by(difference * difference, total, by)


_LEFT_SHIFT = 8
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.equal": tirx.EQ,
    "relax.not_equal": tirx.NE,
    "relax.less": tirx.LT,
    "relax.less_equal": tirx.LE,
    "relax.greater": tirx.GT,
    "relax.greater_equal": tirx.GE,
}


def is_comparison(call: Any) -> bool:
    return operator_of(call) in _COMPARISONS


def comparing(
    call: Any, steps: Sequence[tuple[float, int]], by: Multiply
) -> Callable[[Any, Any], Any]:
    """Return a function that compares two stored values as `call` does; `steps` are their scales
    and zero points. LiteRT compares whole 256ths of a real number, so that two stored values that
    mean different numbers may be equal."""

    def element(*values: Any) -> Any:
        return _COMPARISONS[operator_of(call)](
            *(_in_256ths(value, *step, by) for value, step in zip(values, steps, strict=True))
        )

    return element


def _in_256ths(value: Any, scale: float, zero_point: int, by: Multiply) -> Any:
    wide = (value.astype("int32") - zero_point) * (1 << _LEFT_SHIFT)
    return multiply_by(wide, fixed_point(scale), by)


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
    """Resize an image with its channels last, at the taps of both axes: fractions of ten bits,
    rounded once."""
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
