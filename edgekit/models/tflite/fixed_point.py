"""LiteRT's logistic function and hyperbolic tangent of 16 bits, as tables of all their values.

LiteRT computes them with gemmlowp's fixed point numbers. The steps are repeated here on all 65536
values at once. A number is its raw integer, and `bits` are those in front of the point.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from edgekit.base.arrays import Array

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1
_ONE = _MOST
"""One, as nearly as a number without bits in front of the point gets to it."""
_STEPS = (
    *((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535)),
    *((3, 720401), (4, 242)),
)
"""Powers of two, and e to their negatives."""


@cache
def logistic_table(bits: int) -> Array:
    """Return the results for -32768 to 32767, with no bits in front of the point."""
    value = np.arange(_LEAST, _MOST + 1, dtype="int64")
    positive = _one_over_one_plus(_exponential(-np.abs(value), bits))
    found = np.where(value > 0, positive, _ONE - positive)
    return _stored(np.where(value == 0, _constant(1 << 30), found))


@cache
def tangent_table(bits: int) -> Array:
    """Return the results for -32768 to 32767, with no bits in front of the point."""
    value = np.arange(_LEAST, _MOST + 1, dtype="int64")
    x = _exponential(-np.abs(value), bits + 1)  # of twice the value
    halves = _newton(x)
    found = _by_power(_wrapped(halves - (1 << 13)), 2)
    return _stored(np.where(value == 0, 0, np.where(value < 0, -found, found)))


def _one_over_one_plus(x: Any) -> Any:
    halves = _newton(x)
    return _by_power(halves, 1)  # half of it


def _newton(x: Any) -> Any:
    """Return 2 / (1 + x) with two bits in front of the point."""
    half = _halved(x + _ONE)
    found = _wrapped(_constant(1515870810) + _times(half, _constant(-1010580540)))
    for _ in range(3):
        rest = _wrapped((1 << 13) - _times(half, found))
        found = _wrapped(found + _by_power(_times(found, rest), 2))
    return found


def _exponential(value: Any, bits: int) -> Any:
    """Return e to values that are not positive."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    part = (value & (quarter - 1)) - quarter
    found = _near_zero(_by_power(part, bits))
    rest = part - value
    for exponent, multiplier in _STEPS:
        if bits > exponent:
            is_set = rest & (1 << (fraction + exponent)) != 0
            found = np.where(is_set, _times(found, _constant(multiplier)), found)
    if bits > 5:
        found = np.where(value < -(1 << (20 - bits)), 0, found)
    return np.where(value == 0, _ONE, found)


def _near_zero(value: Any) -> Any:
    """Return e to values from a negative quarter to zero, from the series around an eighth."""
    x = value + (1 << 12)
    square = _times(x, x)
    cube, fourth = _times(square, x), _times(square, square)
    inner = _times(_by_power(fourth, -2) + cube, _constant(715827883)) + square
    term = _constant(1895147668)
    return np.clip(term + _times(np.full_like(x, term), x + _by_power(inner, -1)), _LEAST, _MOST)


def _times(first: Any, second: Any) -> Any:
    """Return the product with the bits of both in front of the point."""
    return np.minimum((first * second + (1 << 14)) >> 15, _MOST)


def _by_power(value: Any, exponent: int) -> Any:
    """Multiply by a power of two, rounded away from zero, or cut off at the limits."""
    if exponent >= 0:
        return np.clip(value << exponent, _LEAST, _MOST)
    return (value + (1 << (-exponent - 1)) + (value >> 63)) >> -exponent


def _halved(total: Any) -> Any:
    return np.where(total >= 0, (total + 1) >> 1, -((-total + 1) >> 1))


def _constant(raw: int) -> int:
    """Return a constant of 32 bits in 16."""
    return (raw + (1 << 15) + (raw >> 63)) >> 16


def _wrapped(value: Any) -> Any:
    return ((value - _LEAST) & 0xFFFF) + _LEAST


def _stored(value: Any) -> Array:
    found: Array = value.astype("int16")
    return found
