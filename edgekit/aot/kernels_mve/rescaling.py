"""Convert four sums to four stored values, exactly as LiteRT rounds."""

from __future__ import annotations

from edgekit.aot.arithmetic import rounds_ties_wrong
from edgekit.aot.operators import Rescale
from edgekit.base.arrays import Array

HEADERS = ("arm_mve.h",)

_TWICE = """\
/* LiteRT's two roundings; `shift` is negative. */
static inline int32x4_t ek_rescale(int32x4_t sum, int32x4_t factor, int32x4_t shift)
{
    const int32x4_t high = vqrdmulhq_s32(sum, factor);
    return vrshlq_s32(vaddq_s32(high, vshrq_n_s32(high, 31)), shift);
}
"""

_TWICE_POSITIVE = """\
/* LiteRT's two roundings, where values below zero are cut off: their halves do not matter. */
static inline int32x4_t ek_rescale_positive(int32x4_t sum, int32x4_t factor, int32x4_t shift)
{
    return vrshlq_s32(vqrdmulhq_s32(sum, factor), shift);
}
"""

_ONCE = """\
/* A single rounding; `shift` is negative, and one more than the factor's. */
static inline int32x4_t ek_rescale_once(int32x4_t sum, int32x4_t factor, int32x4_t shift)
{
    return vrshlq_s32(vmulhq_s32(sum, factor), shift);
}
"""

STORE_FOUR = """\
static inline void ek_store_four(int8_t *to, int32x4_t value, int32_t zero, int32_t low,
    int32_t high)
{
    value = vaddq_n_s32(value, zero);
    value = vminq_s32(vmaxq_s32(value, vdupq_n_s32(low)), vdupq_n_s32(high));
    vstrbq_s32(to, value);
}
"""

STORE_SOME = """\
static inline void ek_store_some(int8_t *to, int32x4_t value, int32_t zero, int32_t low,
    int32_t high, mve_pred16_t which)
{
    value = vaddq_n_s32(value, zero);
    value = vminq_s32(vmaxq_s32(value, vdupq_n_s32(low)), vdupq_n_s32(high));
    vstrbq_p_s32(to, value, which);
}
"""

STORE_EIGHT = """\
/* Interleave channels 0, 2, 4, 6 and 1, 3, 5, 7. */
static inline void ek_store_eight(int8_t *to, int32x4_t even, int32x4_t odd, int16_t zero,
    int16_t low, int16_t high)
{
    int16x8_t both = vqmovntq_s32(vqmovnbq_s32(vdupq_n_s16(0), even), odd);
    both = vqaddq_n_s16(both, zero);
    vstrbq_s16(to, vminq_s16(vmaxq_s16(both, vdupq_n_s16(low)), vdupq_n_s16(high)));
}
"""


def why_not(rescale: Rescale, largest: int = 0) -> str | None:
    """Return why these instructions are not exact for such factors and sums."""
    if any(factor.multiplier < 0 for factor in rescale.factors):
        return "a factor is negative"
    least = 2 if rescale.rounds_once else 1
    if any(not least <= -factor.shift <= 31 for factor in rescale.factors):
        return "a factor is not below 1/2"
    if rounds_ties_wrong(rescale, largest):
        return "a sum below zero may lie half way between two steps"
    return None


def name(rescale: Rescale) -> str:
    if rescale.rounds_once:
        return "ek_rescale_once"
    return "ek_rescale" if rescale.low < rescale.zero_point else "ek_rescale_positive"


def helper(rescale: Rescale) -> str:
    texts = {"ek_rescale": _TWICE, "ek_rescale_positive": _TWICE_POSITIVE, "ek_rescale_once": _ONCE}
    return texts[name(rescale)]


def table(rescale: Rescale, bias: Array, order: list[list[int]]) -> Array:
    """Return for each four channels the initial sums, factors and shifts, as vectors of int32."""
    import numpy as np

    factors = rescale.factors * (len(bias) // len(rescale.factors))
    lift = 1 if rescale.rounds_once else 0
    rows = [
        [
            [int(bias[channel]) for channel in four],
            [factors[channel].multiplier for channel in four],
            [factors[channel].shift + lift for channel in four],
        ]
        for four in order
    ]
    return np.array(rows, np.int64).astype(np.uint32).view(np.int32)
