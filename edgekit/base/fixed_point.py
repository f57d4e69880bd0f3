"""Real factors as LiteRT multiplies by them: whole numbers and powers of two."""

from __future__ import annotations

import math


def mantissa_and_exponent(factor: float) -> tuple[int, int]:
    """Return the nearest `mantissa * 2**(exponent - 31)` to a factor that is not negative."""
    if factor == 0.0:
        return 0, 0
    fraction, exponent = math.frexp(factor)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = mantissa // 2, exponent + 1
    return (0, 0) if exponent < -31 else (mantissa, exponent)
