"""Softmax in fixed point. The exponentials of the few possible differences come from a table."""

from __future__ import annotations

import numpy as np

from edgekit.aot.arithmetic import exponential, high_half
from edgekit.aot.kernel import Constant, Kernel
from edgekit.aot.kernels_portable import rescaling
from edgekit.aot.kernels_portable.text import MAKER, block, loop, with_source
from edgekit.aot.operators import Softmax
from edgekit.aot.program import Step

RECIPROCAL = """\
/* 1 / (1 + x) for x in [0, 1), both with 31 bits below the point: three of Newton's steps. */
static inline int32_t ek_reciprocal(int32_t x)
{
    const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) / 2);
    int32_t result = 1515870810 + ek_high(half, -1010580540);
    for (int32_t i = 0; i < 3; i++) {
        const int32_t rest = (1 << 29) - ek_high(half, result);
        result += ek_high(result, rest) * 4;
    }
    return result >= 1 << 30 ? INT32_MAX : result * 2;
}
"""


def softmax(step: Step, operator: Softmax) -> Kernel:
    table = _exponentials(operator)
    in_table = f"largest - input[i] < {len(table)}"
    every = len(table) >= 256
    exponent = f"{step.name}_exponentials[largest - input[i]]"
    added = [f"sum += ek_shift_large({exponent}, 12);"]
    written = [
        f"const int32_t part = ek_shift_large(ek_high(scale, {exponent}), 35 - zeros);",
        "output[i] = ek_clamp(part - 128, -128, 127);",
    ]
    if not every:
        added = block(f"if ({in_table})", added)
        written = [*block(f"if ({in_table})", written), *block("else", ["output[i] = -128;"])]
        written[len(written) - 4 : len(written) - 2] = ["} else {"]
    columns = operator.columns
    row = [
        "int32_t largest = -128, sum = 0;",
        *loop("i", columns, block("if (input[i] > largest)", ["largest = input[i];"])),
        *loop("i", columns, added),
        "/* 1 / sum, as a number in [1/2, 1) and a power of two. */",
        "const int32_t zeros = (int32_t)__builtin_clz((uint32_t)sum);",
        "const int32_t scale = ek_reciprocal(",
        "    (int32_t)(((uint32_t)sum << zeros) - ((uint32_t)1 << 31)));",
        *loop("i", columns, written),
        *([f"input += {columns};", f"output += {columns};"] if operator.rows > 1 else []),
    ]
    comment = f"softmax of {operator.rows} x {columns}"
    return with_source(
        step,
        comment,
        loop("row", operator.rows, row),
        Kernel(
            MAKER,
            "",
            constants=(Constant("exponentials", table),),
            helpers=(rescaling.HIGH, rescaling.SHIFT_LARGE, rescaling.CLAMP, RECIPROCAL),
            in_place=((0, 0),),
        ),
    )


def _exponentials(operator: Softmax) -> np.ndarray:
    """Return the exponentials of 0, -1, -2, ... steps below the largest value."""
    factor = operator.factor
    count = min(-operator.least_difference, 255) + 1
    differences = (-place << max(factor.shift, 0) for place in range(count))
    scaled = [high_half(value, factor.multiplier) for value in differences]
    return np.array([exponential(value) for value in scaled], "int32")
