"""Sums of two tensors of one shape, four at a time: shifts and factors are constants."""

from __future__ import annotations

import math

from edgekit.aot.kernel import Declined, Kernel
from edgekit.aot.kernels_mve import rescaling
from edgekit.aot.operators import Add, Operand
from edgekit.aot.program import Step

_HALF = 1 << 30

_SCALED = """\
/* vector * m / 2**31, halves away from zero; shifted right by a constant in the same way. */
#define ek_scaled(vector, m, right) \\
    ek_shift_sign(vqrdmulhq_n_s32(vector, m), -(right))
static inline int32x4_t ek_shift_sign(int32x4_t value, int32_t left)
{
    return vrshlq_s32(vaddq_s32(value, vshrq_n_s32(value, 31)), vdupq_n_s32(left));
}
"""


def offer(step: Step, operator: Add) -> Kernel | Declined:
    if not operator.left.shape == operator.right.shape == operator.shape:
        return Declined("one side is broadcast")
    if operator.left.constant is not None or operator.right.constant is not None:
        return Declined("one side is constant")
    reason = rescaling.why_not(operator.rescale)
    if reason:
        return Declined(reason)
    for operand in (operator.left, operator.right):
        if operand.factor.multiplier < 0 or operand.factor.shift > 0:
            return Declined("an input's factor is above one")
    count = math.prod(operator.shape)
    rescale = operator.rescale
    call = "vsubq_s32" if operator.negate_right else "vaddq_s32"
    factor = rescale.factors[0]
    limits = f"{rescale.zero_point}, {rescale.low}, {rescale.high}"

    def four(part: str, load: str, store: str) -> list[str]:
        return [
            f"int32x4_t first = {load.format('left')}, second = {load.format('right')};",
            f"first = {_scaled(operator.left, 'first', operator.left_shift)};",
            f"second = {_scaled(operator.right, 'second', operator.left_shift)};",
            f"first = {call}(first, second);",
            f"first = ek_scaled(first, {factor.multiplier}, {-factor.shift});",
            f"{store}(output, first, {limits}{part});",
        ]

    lines = [
        f"const int8_t *end = left + {count - count % 4};",
        "for (; left != end; left += 4, right += 4, output += 4) {",
        *(f"    {line}" for line in four("", "vldrbq_s32({})", "ek_store_four")),
        "}",
    ]
    helpers = [_SCALED, rescaling.STORE_FOUR]
    if count % 4:
        helpers.append(rescaling.STORE_SOME)
        lines += [f"const mve_pred16_t rest = vctp32q({count % 4});"]
        lines += four(", rest", "vldrbq_z_s32({}, rest)", "ek_store_some")
    body = "".join(f"    {line}\n" for line in lines)
    signature = (
        f"static void {step.name}(const int8_t *left, const int8_t *right, int8_t *output)\n"
    )
    return Kernel(
        maker="edgekit mve",
        source=signature + "{\n" + body + "}\n",
        helpers=tuple(helpers),
        headers=rescaling.HEADERS,
        in_place=((0, 0), (1, 0)),
        instructions=20 + 22 * -(-count // 4),
        note="four at a time",
    )


def _scaled(operand: Operand, value: str, left_shift: int) -> str:
    """Return C for one side's part of a sum."""
    shift, right = left_shift, -operand.factor.shift
    exact = operand.factor.multiplier == _HALF and right < left_shift
    if exact:
        shift = left_shift - 1 - right
    start = -operand.zero_point * (1 << shift)
    read = f"vaddq_n_s32(vshlq_n_s32({value}, {shift}), {start})"
    return read if exact else f"ek_scaled({read}, {operand.factor.multiplier}, {right})"
