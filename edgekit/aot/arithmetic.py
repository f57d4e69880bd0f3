"""LiteRT's integer arithmetic on Python's integers, for computing tables and constants."""

from __future__ import annotations

import math

import numpy as np

from edgekit.aot.operators import Conv2D, DepthwiseConv2D, FixedPoint, FullyConnected, Rescale
from edgekit.base.arrays import Array
from edgekit.base.fixed_point import mantissa_and_exponent

INT8 = (-128, 127)
ADD_LEFT_SHIFT = 20
"""The number of bits below the point in additions."""
_SOFTMAX_INTEGER_BITS = 5
"""The integer bits of the exponent's argument: 26 bits are left below its point."""


def fixed_point(factor: float) -> FixedPoint:
    """Return the fixed-point number nearest to a factor that is not negative."""
    return FixedPoint(*mantissa_and_exponent(factor))


def multiply(value: int, factor: FixedPoint) -> int:
    """Multiply, rounding when the product is halved to 32 bits and when the rest is shifted out."""
    return shift_right(high_half(value << max(factor.shift, 0), factor.multiplier), -factor.shift)


def high_half(value: int, factor: int, bits: int = 32) -> int:
    """Return the upper half of twice the product, saturated; ties round up."""
    limit = 1 << (bits - 1)
    if value == factor == -limit:
        return limit - 1
    product = value * factor
    nudge = 1 << (bits - 2)
    total = product + (nudge if product >= 0 else 1 - nudge)
    return abs(total) // limit * (1 if total >= 0 else -1)


def shift_right(value: int, amount: int) -> int:
    """Divide by a power of two, ties away from zero; unchanged where nothing is shifted out."""
    if amount <= 0:
        return value
    half = 1 << (amount - 1)
    return (value + half) >> amount if value >= 0 else -((-value + half) >> amount)


def has_ties(factor: FixedPoint, largest: int) -> bool:
    """Return whether a value up to `largest` times the factor can be half way between two numbers.

    Only where the multiplier ends in so many zeros that a value's own can make up for the rest.
    """
    if factor.multiplier == 0:
        return False
    zeros = (factor.multiplier & -factor.multiplier).bit_length() - 1
    return largest >= 1 << max(30 - factor.shift - zeros, 0)


def saturated(value: int, low: int = INT8[0], high: int = INT8[1]) -> int:
    return max(low, min(high, value))


def round_half_away(value: float) -> int:
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


def mean_factor(factor: FixedPoint, count: int) -> FixedPoint:
    """Divide a factor by the number of summed values, as LiteRT does for a mean."""
    shift = min(count.bit_length() - 1, 32, 31 + factor.shift)
    return FixedPoint((factor.multiplier << shift) // count, factor.shift - shift)


def softmax_factor(scale: float, beta: float) -> tuple[FixedPoint, int]:
    """Return the factor of differences, and the least difference whose exponential counts."""
    fraction_bits = 31 - _SOFTMAX_INTEGER_BITS
    factor = fixed_point(min(beta * scale * 2**fraction_bits, 2**31 - 1.0))
    largest = ((1 << _SOFTMAX_INTEGER_BITS) - 1) * 2.0**fraction_bits
    return factor, -math.floor(largest / 2.0**factor.shift)


def float_product(*factors: float) -> float:
    """Multiply in single precision, where LiteRT does so before it continues in double."""
    product = np.float32(1.0)
    for factor in factors:
        product = np.float32(product * np.float32(factor))
    return float(product)


def exponential(value: int) -> int:
    """Return exp of a number that is not positive, with 26 bits below the point, as one with 31."""
    if value == 0:
        return (1 << 31) - 1
    quarter = 1 << 24
    rest = (value & (quarter - 1)) - quarter
    result = _exponential_near_zero(saturated(rest << 5, -(1 << 31), (1 << 31) - 1))
    for exponent, factor in enumerate(_EXPONENTIALS, start=-2):
        if (rest - value) & (1 << (26 + exponent)):
            result = high_half(result, factor)
    return result


_EXPONENTIALS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), exp(-1), ... exp(-16)."""


def _exponential_near_zero(value: int) -> int:
    """Return exp for numbers in [-1/4, 0), by the first terms of the series around -1/8."""
    middle, third = 1895147668, 715827883
    x = value + (1 << 28)
    squared = high_half(x, x)
    cubed, fourth = high_half(squared, x), high_half(squared, squared)
    higher = shift_right(high_half(shift_right(fourth, 2) + cubed, third) + squared, 1)
    return min(middle + high_half(middle, x + higher), (1 << 31) - 1)


def rounds_ties_wrong(rescale: Rescale, largest: int) -> bool:
    """Return whether a sum half way between two stored values rounds wrong: a single rounding sends
    it away from zero, and the short instructions up. Values that an activation cuts off do not
    count."""
    if not rescale.rounds_once or rescale.low >= rescale.zero_point:
        return False
    return any(has_ties(factor, largest) for factor in rescale.factors)


def first_sums(operator: Conv2D | DepthwiseConv2D | FullyConnected) -> Array:
    """Return the initial sum of each output channel: its bias, without the input's zero point."""
    weights = np.asarray(operator.weights, np.int64)
    apart = isinstance(operator, DepthwiseConv2D)
    of_each = weights.sum(axis=(0, 1) if apart else tuple(range(1, weights.ndim)))
    sums: Array = np.asarray(operator.bias, np.int64) - operator.zero_point * of_each
    return sums


def largest_sum(weights: Array, bias: Array) -> int:
    """Return the largest sum of any output channel; `weights` have the output channels first."""
    of_each = np.abs(np.asarray(weights, np.int64)).reshape(len(weights), -1).sum(axis=1)
    return int((255 * of_each + np.abs(np.asarray(bias, np.int64))).max())
