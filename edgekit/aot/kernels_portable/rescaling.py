"""Convert int32 sums to stored values, as LiteRT rounds, in as few instructions as plain C allows.

The first rounding halves a product of 64 bits. Where a sum is known to stay below 2**30, twice the
sum times the factor gives the same number in the upper word, for which compilers have one
instruction. The second rounding takes ties away from zero; values below the zero point that are cut
off anyway need not be exact about that.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.aot.arithmetic import rounds_ties_wrong
from edgekit.aot.kernels_portable.text import plus
from edgekit.aot.operators import FixedPoint, Rescale
from edgekit.base.arrays import Array

HIGH = """\
/* value * factor / 2**31, rounded to the nearest. */
static inline int32_t ek_high(int32_t value, int32_t factor)
{
    return (int32_t)(((int64_t)value * factor + (INT64_C(1) << 30)) >> 31);
}
"""
WORD = """\
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
/* The upper word of a product, of which `low` gets the highest bit of the lower word: these CPUs
   multiply to 32 bits and no further, so four products of 16 bits. */
static inline int32_t ek_upper_word(int32_t value, int32_t factor, int32_t *low)
{
    const uint32_t v = (uint32_t)value & 0xffff, f = (uint32_t)factor & 0xffff;
    const int32_t first = (value >> 16) * (int32_t)f + (int32_t)((v * f) >> 16);
    const int32_t second = (int32_t)v * (factor >> 16) + (first & 0xffff);
    *low = (second >> 15) & 1;
    return (value >> 16) * (factor >> 16) + (first >> 16) + (second >> 16);
}
#endif
"""
HIGH_OF_SMALL = """\
/* value * factor / 2**31, rounded to the nearest, for values that doubling does not overflow. */
static inline int32_t ek_high_of_small(int32_t value, int32_t factor)
{
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
    int32_t low;
    const int32_t high = ek_upper_word(value * 2, factor, &low);
    return high + low;
#else
    return (int32_t)(((int64_t)(value * 2) * factor + (INT64_C(1) << 31)) >> 32);
#endif
}
"""
FLOOR_HIGH = """\
/* value * factor / 2**32, rounded down. */
static inline int32_t ek_floor_high(int32_t value, int32_t factor)
{
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
    int32_t low;
    return ek_upper_word(value, factor, &low);
#else
    return (int32_t)(((int64_t)value * factor) >> 32);
#endif
}
"""
ONCE = """\
/* value * factor / 2**shift, rounded to the nearest, ties away from zero. */
static inline int32_t ek_scaled_once(int32_t value, int32_t factor, int32_t shift)
{
    const int64_t product = (int64_t)value * factor - (value < 0);
    return (int32_t)((product + (INT64_C(1) << (shift - 1))) >> shift);
}
"""
SHIFT = """\
/* value / 2**shift, rounded to the nearest, ties away from zero. */
static inline int32_t ek_shift(int32_t value, int32_t shift)
{
    const int32_t half = shift > 0 ? (int32_t)1 << (shift - 1) : 0;
    return (value + half - (shift > 0 && value < 0)) >> shift;
}
"""
SHIFT_LARGE = """\
/* ek_shift of values so large that adding a half may overflow. */
static inline int32_t ek_shift_large(int32_t value, int32_t shift)
{
    const int32_t mask = (int32_t)(((uint32_t)1 << shift) - 1);
    return (value >> shift) + ((value & mask) > (mask >> 1) + (value < 0));
}
"""
CLAMP = """\
static inline int8_t ek_clamp(int32_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}
"""

_SMALL = 1 << 30


@dataclass(frozen=True)
class Expression:
    """A C expression, and the helpers that it needs."""

    text: str
    helpers: tuple[str, ...]


def scaled(value: str, factor: FixedPoint, largest: int) -> Expression:
    """Multiply a value of at most `largest` by a factor, rounded twice."""
    left = max(factor.shift, 0)
    if left:
        value, largest = f"({value} * {1 << left})", largest << left
    if factor.multiplier == 1 << 30 and largest < _SMALL:
        return _shifted(f"(({value} + 1) >> 1)", -factor.shift, largest, ())
    high = _high(value, str(factor.multiplier), largest)
    return _shifted(high.text, -factor.shift, largest, high.helpers)


def _shifted(text: str, right: int | str, largest: int, helpers: tuple[str, ...]) -> Expression:
    """Shift right, rounded. `right` is a number, or the name of a variable that is not negative."""
    if isinstance(right, int) and right <= 0:
        return Expression(text, helpers)
    if largest < _SMALL:
        return Expression(f"ek_shift({text}, {right})", (*helpers, SHIFT))
    return Expression(f"ek_shift_large({text}, {right})", (*helpers, SHIFT_LARGE))


def stored(value: str, rescale: Rescale, largest: int) -> Expression:
    """Return the stored value of a sum, where all channels have one factor."""
    (factor,) = rescale.factors
    if rescale.rounds_once:
        inner = _once(value, factor, rounds_ties_wrong(rescale, largest))
    elif _cuts_negatives(rescale) and 1 <= -factor.shift <= 22 and _fits(rescale, factor, largest):
        inner = _high(value, str(factor.multiplier), largest)
        offset = _rounding(rescale, -factor.shift)
        inner = Expression(f"({inner.text}{plus(offset)}) >> {-factor.shift}", inner.helpers)
        return clamped(inner, rescale)
    else:
        inner = scaled(value, factor, largest)
    return clamped(Expression(inner.text + plus(rescale.zero_point), inner.helpers), rescale)


def _once(value: str, factor: FixedPoint, needs_ties: bool) -> Expression:
    shift = 31 - factor.shift
    if shift >= 33 and not needs_ties:
        text = f"(ek_floor_high({value}, {factor.multiplier}){plus(1 << (shift - 33))})"
        return Expression(f"({text} >> {shift - 32})", (WORD, FLOOR_HIGH))
    return Expression(f"ek_scaled_once({value}, {factor.multiplier}, {shift})", (ONCE,))


@dataclass(frozen=True)
class PerChannel:
    """The conversion of sums to stored values where every channel has a row of numbers."""

    rows: Array
    """int32 for each channel: the initial value of its sum; where channels differ, also the
    multiplier and the shift."""
    stored: Expression
    """The stored value, in terms of `sum` and `row`."""

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])


def per_channel(
    rescale: Rescale, start: Array, largest: int, names: tuple[str, str] = ("row[1]", "row[2]")
) -> PerChannel:
    """Return the conversion; `names` are the C names of a channel's multiplier and shift."""
    import numpy as np

    if len(rescale.factors) == 1:
        return PerChannel(start.astype("int32").reshape(-1, 1), stored("sum", rescale, largest))
    rows = np.array(
        [
            (int(first), factor.multiplier, _row_shift(factor, rescale))
            for first, factor in zip(start, rescale.factors, strict=True)
        ],
        "int32",
    )
    return PerChannel(rows, clamped(_of_row(rescale, largest, *names), rescale))


def _row_shift(factor: FixedPoint, rescale: Rescale) -> int:
    return 31 - factor.shift if rescale.rounds_once else -factor.shift


def _of_row(rescale: Rescale, largest: int, factor: str, shift: str) -> Expression:
    factors, zero = rescale.factors, rescale.zero_point
    if rescale.rounds_once:
        short = all(each.shift <= -2 for each in factors)
        if short and not rounds_ties_wrong(rescale, largest):
            half = f"((int32_t)1 << ({shift} - 33))"
            text = f"((ek_floor_high(sum, {factor}) + {half}) >> ({shift} - 32))"
            return Expression(text + plus(zero), (WORD, FLOOR_HIGH))
        return Expression(f"ek_scaled_once(sum, {factor}, {shift}){plus(zero)}", (ONCE,))
    if any(each.shift > 0 for each in factors):
        text = f"ek_shift_either(ek_high(ek_left(sum, {shift}), {factor}), {shift})"
        return Expression(text + plus(zero), (HIGH, SHIFT_LARGE, _EITHER))
    high = _high("sum", factor, largest)
    short = all(1 <= -each.shift <= 22 and _fits(rescale, each, largest) for each in factors)
    if short and _cuts_negatives(rescale):
        # Twice the zero point plus one half, scaled up by the later shift.
        text = f"({high.text} + ({2 * zero + 1}) * ((int32_t)1 << ({shift} - 1))) >> {shift}"
        return Expression(text, high.helpers)
    shifted = _shifted(high.text, shift, largest, high.helpers)
    return Expression(shifted.text + plus(zero), shifted.helpers)


_EITHER = """\
/* Rescaling where some channels shift to the left: `shift` is to the right, or negative. */
static inline int32_t ek_left(int32_t value, int32_t shift)
{
    return shift < 0 ? (int32_t)((uint32_t)value << -shift) : value;
}

static inline int32_t ek_shift_either(int32_t value, int32_t shift)
{
    return shift > 0 ? ek_shift_large(value, shift) : value;
}
"""


def _high(value: str, multiplier: str, largest: int) -> Expression:
    if largest < _SMALL:
        return Expression(f"ek_high_of_small({value}, {multiplier})", (WORD, HIGH_OF_SMALL))
    return Expression(f"ek_high({value}, {multiplier})", (HIGH,))


def clamped(value: Expression, rescale: Rescale) -> Expression:
    text = f"ek_clamp({value.text}, {rescale.low}, {rescale.high})"
    return Expression(text, (*value.helpers, CLAMP))


def _cuts_negatives(rescale: Rescale) -> bool:
    """Return whether values below the zero point are cut off, which hides how their ties round."""
    return rescale.low >= rescale.zero_point


def _rounding(rescale: Rescale, right: int) -> int:
    return (rescale.zero_point << right) + (1 << (right - 1))


def _fits(rescale: Rescale, factor: FixedPoint, largest: int) -> bool:
    """Return whether the zero point can be added before the shift without an overflow."""
    return largest + abs(_rounding(rescale, -factor.shift)) < 1 << 31
