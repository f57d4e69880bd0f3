"""LiteRT's arithmetic of functions of one or two stored values, as tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import tirx

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
