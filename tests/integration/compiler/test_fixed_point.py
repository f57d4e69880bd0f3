"""The short forms of LiteRT's fixed-point arithmetic equal its own long ones."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.passes.fixed_point import FixedPoint, fixed_point

INT32 = st.integers(-(2**31), 2**31 - 1)


def truncated(numerator: int, denominator: int) -> int:
    return math.trunc(Fraction(numerator, denominator))


def as_litert_writes_it(value: int, number: FixedPoint) -> int:
    """SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT."""
    product = (value << max(number.exponent, 0)) * number.mantissa
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    high = truncated(product + nudge, 1 << 31)
    shift = max(-number.exponent, 0)
    mask = (1 << shift) - 1
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> shift) + (1 if (high & mask) > threshold else 0)


def as_we_write_it(value: int, number: FixedPoint) -> int:
    factor, shift, half, lean = number.parts
    high = (value * factor + (1 << 30)) >> 31
    return (high + half + ((high >> 31) & lean)) >> shift


@given(value=INT32, factor=st.floats(1e-9, 0.999))
def test_rounding_twice_in_the_short_form_is_rounding_twice(value: int, factor: float) -> None:
    number = fixed_point(factor)
    assert as_we_write_it(value, number) == as_litert_writes_it(value, number)


@given(value=st.integers(-(2**20), 2**20), factor=st.floats(1.0, 500.0))
def test_factors_above_one_round_alike_too(value: int, factor: float) -> None:
    number = fixed_point(factor)
    assert as_we_write_it(value, number) == as_litert_writes_it(value, number)


@given(high=st.integers(-300, 300), shift=st.integers(0, 6))
def test_ties_go_away_from_zero(high: int, shift: int) -> None:
    number = FixedPoint(1 << 30, -shift)
    exact = Fraction(high, 2 ** (shift + 1))
    expected = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
    assert abs(as_we_write_it(high, number) - expected) <= 1  # rounding twice may differ by one
    assert as_we_write_it(2 * high, FixedPoint(1 << 30, -shift)) == (
        int(abs(Fraction(high, 2**shift)) + Fraction(1, 2)) * (1 if high >= 0 else -1)
    )


@given(factor=st.floats(1e-8, 1e6))
def test_a_fixed_point_number_is_the_nearest_one(factor: float) -> None:
    number = fixed_point(factor)
    assert 2**30 <= number.mantissa < 2**31
    real = number.mantissa * 2.0 ** (number.exponent - 31)
    assert math.isclose(real, factor, rel_tol=2.0**-31)


def test_factors_too_small_to_matter_are_zero() -> None:
    assert fixed_point(0.0) == fixed_point(1e-12) == FixedPoint(0, 0)


def test_the_smallest_factor_that_matters_is_kept() -> None:
    assert fixed_point(2.0**-32) == FixedPoint(2**30, -31)
    assert fixed_point(2.0**-33) == FixedPoint(0, 0)


def test_a_mantissa_that_rounds_up_to_two_moves_the_point() -> None:
    assert fixed_point(1 - 2.0**-40) == FixedPoint(2**30, 1)
