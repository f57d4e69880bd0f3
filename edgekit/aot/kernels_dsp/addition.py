"""Sums of two tensors of one shape: shifts are constants, and one side needs no multiplication."""

from __future__ import annotations

import math

from edgekit.aot.kernel import Declined, Kernel
from edgekit.aot.kernels_dsp import rescaling, text
from edgekit.aot.operators import Add, Operand
from edgekit.aot.program import Step

_HALF = 1 << 30


def offer(step: Step, operator: Add) -> Kernel | Declined:
    if not operator.left.shape == operator.right.shape == operator.shape:
        return Declined("one side is broadcast")
    if operator.left.constant is not None or operator.right.constant is not None:
        return Declined("one side is constant")
    reason = rescaling.why_not(operator.rescale)
    if reason:
        return Declined(reason)
    for operand in (operator.left, operator.right):
        if operand.factor.multiplier < _HALF or operand.factor.shift > 0:
            return Declined("an input's factor is above one, or zero")
    count = math.prod(operator.shape)
    four = 4 if count % 4 == 0 else 1
    rescale = operator.rescale
    sign = "-" if operator.negate_right else "+"
    body: list[str] = []
    for n in range(four):
        body += _scaled(operator.left, "left", n, operator.left_shift)
        body += _scaled(operator.right, "right", n, operator.left_shift)
        body += [f"output[{n}] = {rescaling.stored(rescale, f'left_{n} {sign} right_{n}')};"]
    factor, shift = rescaling.factor(rescale, 0)
    body = ["{ /* one at a time */", *body, "}"] if four == 1 else body
    lines = [
        f"const int32_t factor = {literal(factor)}, shift = {shift};",
        f"const int32_t half = {literal((2 * rescale.zero_point + 1) << (shift - 1))};",
        f"const int8_t *end = left + {count};",
        f"for (; left != end; left += {four}, right += {four}, output += {four}) {{",
        *(f"    {line}" for line in body),
        "}",
    ]
    inner = "".join(f"    {line}\n" for line in lines)
    source = f"static void {step.name}(const int8_t *left, const int8_t *right, int8_t *output)\n"
    return Kernel(
        maker="edgekit dsp",
        source=source + "{\n" + inner + "}\n",
        helpers=(text.ROUND_HIGH, text.ADD_SIGN, *rescaling.helpers(rescale)),
        headers=text.HEADERS,
        in_place=((0, 0), (1, 0)),
        instructions=20 + 17 * count,
        note="constant shifts",
    )


def _scaled(operand: Operand, name: str, n: int, left_shift: int) -> list[str]:
    """Return C for one side's part of a sum."""
    shift, zero = left_shift, operand.zero_point
    value = f"{name}_{n}"
    exact = operand.factor.multiplier == _HALF and -operand.factor.shift < left_shift
    if exact:
        shift = left_shift - 1 + operand.factor.shift
    start = literal(-zero * (1 << shift))
    read = f"(int32_t)((uint32_t){name}[{n}] << {shift}) + {start}"
    if exact:
        return [f"const int32_t {value} = {read};"]
    twice = literal(2 * operand.factor.multiplier - (1 << 32))
    right = -operand.factor.shift
    high = f"ek_round_high({read}, {twice})"
    if right:
        high = f"ek_add_sign({high}, {1 << (right - 1)}) >> {right}"
    return [f"const int32_t {value} = {high};"]


def literal(value: int) -> str:
    return "(-2147483647 - 1)" if value == -(1 << 31) else str(value)
