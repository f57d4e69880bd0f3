"""Convert sums to stored values in two or three instructions, exactly as LiteRT rounds."""

from __future__ import annotations

from edgekit.aot.arithmetic import rounds_ties_wrong
from edgekit.aot.kernels_dsp import text
from edgekit.aot.operators import Rescale
from edgekit.base.arrays import Array


def why_not(rescale: Rescale, largest: int = 0) -> str | None:
    """Return why the short way is not exact for these factors and sums."""
    if any(factor.multiplier < 1 << 30 for factor in rescale.factors):
        return "a factor is zero"
    least = 2 if rescale.rounds_once else 1
    if any(-factor.shift < least for factor in rescale.factors):
        return "a factor is not below 1/2"
    if any(-factor.shift > 23 for factor in rescale.factors):
        return "a factor is below 2**-23"
    if rounds_ties_wrong(rescale, largest):
        return "a sum below zero may lie half way between two steps"
    return None


def table(rescale: Rescale, bias: Array) -> Array:
    """Return three int32 per channel: the initial value of the sum, its factor, and the shift."""
    import numpy as np

    factors = rescale.factors * (len(bias) // len(rescale.factors))
    rows = [
        (int(start), *_factor(factor.multiplier, -factor.shift, rescale.rounds_once))
        for start, factor in zip(bias, factors, strict=True)
    ]
    return np.array(rows, np.int64).astype(np.uint32).view(np.int32).reshape(-1, 3)


def _factor(multiplier: int, right: int, rounds_once: bool) -> tuple[int, int]:
    return (multiplier, right - 1) if rounds_once else (2 * multiplier - (1 << 32), right)


def factor(rescale: Rescale, channel: int) -> tuple[int, int]:
    """Return the factor in the instruction's form, and the shift."""
    found = rescale.factors[channel]
    return _factor(found.multiplier, -found.shift, rescale.rounds_once)


def helpers(rescale: Rescale) -> tuple[str, ...]:
    used = [text.ADD_HIGH if rescale.rounds_once else text.ROUND_HIGH]
    if needs_sign(rescale):
        used.append(text.ADD_SIGN)
    full = (rescale.low, rescale.high) == (-128, 127)
    used.append(text.SATURATE if full else text.CLAMP)
    return tuple(used)


def rounding(rescale: Rescale) -> str:
    """Return C for the addend before the shift: one half, and the output's zero point."""
    return f"(int32_t)((uint32_t){2 * rescale.zero_point + 1} << (shift - 1))"


def stored(rescale: Rescale, total: str) -> str:
    """Return C for the stored value of a sum, in terms of `factor`, `shift` and `half`."""
    if rescale.rounds_once:
        return clamp(rescale, f"ek_add_high({total}, factor, half) >> shift")
    return clamp(rescale, f"{_signed(rescale, f'ek_round_high({total}, factor)')} >> shift")


def needs_sign(rescale: Rescale) -> bool:
    """Return whether ties of negative numbers, which go away from zero, can affect the result."""
    return not rescale.rounds_once and rescale.low < rescale.zero_point


def _signed(rescale: Rescale, high: str) -> str:
    return f"ek_add_sign({high}, half)" if needs_sign(rescale) else f"({high} + half)"


def clamp(rescale: Rescale, value: str) -> str:
    if (rescale.low, rescale.high) == (-128, 127):
        return f"ek_saturate({value})"
    return f"ek_clamp({value}, {rescale.low}, {rescale.high})"
