"""LiteRT's fixed-point arithmetic, number for number, as tensor expressions.

A real factor becomes a 31-bit mantissa and a power of two. Multiplying rounds twice: once when the
64-bit product is halved to 32 bits, once when the power of two is taken off. That double rounding
is why float arithmetic, however precise, gives other int8 values in about one element of a hundred.
Fully connected layers alone round once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from edgekit.base.fixed_point import mantissa_and_exponent

ADD_LEFT_SHIFT = 20
"""The number of bits below the point in additions."""


@dataclass(frozen=True)
class FixedPoint:
    """mantissa * 2**(exponent - 31), mantissa in [2**30, 2**31)."""

    mantissa: int
    exponent: int

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """The arguments of `multiply`: a factor, a right shift, half a step of that shift, and -1
        where half a step below zero must round down, or 0 where nothing is shifted out."""
        shift = max(-self.exponent, 0)
        return self.mantissa << max(self.exponent, 0), shift, (1 << shift) >> 1, -min(shift, 1)


def fixed_point(factor: float) -> FixedPoint:
    """Return the fixed-point number nearest to a factor that is not negative."""
    return FixedPoint(*mantissa_and_exponent(factor))


def divided(number: FixedPoint, count: int) -> FixedPoint:
    """Divide a factor by the number of summed values, as LiteRT does for a mean."""
    shift = min(count.bit_length() - 1, 32, 31 + number.exponent)
    return FixedPoint((number.mantissa << shift) // count, number.exponent - shift)


def multiply(value: Any, factor: Any, shift: Any, half: Any, lean: Any) -> Any:
    """Multiply an int32 by a fixed-point number given as its `parts`, rounded as LiteRT rounds.

    LiteRT writes both roundings with a case for negative numbers. These forms give the same numbers
    and use `value` once, which matters: an expression is a tree, and copies multiply.
    """
    product = value.astype("int64") * factor.astype("int64") + tirx.const(1 << 30, "int64")
    high = tirx.shift_right(product, tirx.const(31, "int64")).astype("int32")
    negative = tirx.shift_right(high, tirx.const(31, "int32"))
    return tirx.shift_right(high + half + tirx.bitwise_and(negative, lean), shift)


def multiply_rounding_once(value: Any, factor: Any, shift: Any) -> Any:
    """Multiply an int32 by a fixed-point number, ties away from zero."""
    one = tirx.const(1, "int64")
    total = shift + tirx.const(31, "int64")
    half = tirx.shift_left(one, total - one)
    negative = tirx.shift_right(value, tirx.const(31, "int32")).astype("int64")
    product = value.astype("int64") * factor.astype("int64")
    return tirx.shift_right(product + half + negative, total).astype("int32")


Multiply = Callable[[Any, Any, Any, Any, Any], Any]
"""`multiply`, or a function that gives the same numbers for factors of 31 bits."""


def multiply_by(value: Any, number: FixedPoint, by: Multiply = multiply) -> Any:
    factor, shift, half, lean = number.parts
    small = is_small(factor)
    return (by if small else multiply)(
        value,
        tirx.const(factor, "int32" if small else "int64"),
        *(tirx.const(part, "int32") for part in (shift, half, lean)),
    )


def is_small(factor: int) -> bool:
    """Return whether a factor has 31 bits: only a factor of one and above has more."""
    return factor < 1 << 31


def saturate(value: Any, low: int, high: int, dtype: str, kind: str = "int32") -> Any:
    """Clamp a value of type `kind` to [low, high] and store it as `dtype`."""
    bounded = tirx.max(tirx.min(value, tirx.const(high, kind)), tirx.const(low, kind))
    return bounded.astype(dtype)


def round_half_away(value: Any) -> Any:
    """Round a float to the nearest whole number, ties away from zero, exactly."""
    whole = tirx.trunc(value)
    rest = value - whole
    one, zero = tirx.const(1.0, "float32"), tirx.const(0.0, "float32")
    up = tirx.Select(rest >= tirx.const(0.5, "float32"), one, zero)
    down = tirx.Select(rest <= tirx.const(-0.5, "float32"), one, zero)
    return whole + up - down


def elementwise(tensor: te.Tensor, compute: Any) -> te.Tensor:
    """Compute one output element from each element of `tensor`, at the same index."""

    def at(*index: Any) -> Any:
        return compute(tensor(*index), index)

    return te.compute(tensor.shape, at, name="litert")
