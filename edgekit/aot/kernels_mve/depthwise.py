"""Depthwise convolutions: eight channels per vector, two pixels at once.

The rows under the window are kept with their padding in a ring, so that each is copied once and no
pixel is a special case.
"""

from __future__ import annotations

from edgekit.aot.arithmetic import first_sums
from edgekit.aot.kernel import APART, Constant, Declined, Kernel, shared
from edgekit.aot.kernels_mve import rescaling, text
from edgekit.aot.operators import DepthwiseConv2D
from edgekit.aot.program import Step
from edgekit.base.arrays import Array

_TAP = """\
/* Eight channels of a pixel, widened; what follows stays behind it. */
static inline int16x8_t ek_eight(const int8_t *from)
{
    int16x8_t x;
    __asm__ volatile("vldrb.s16 %q0, [%1]" : "=w"(x) : "l"(from) : "memory");
    return x;
}

/* Their products with one tap, added to the sums of even and odd channels. In assembly, for
   compilers that load all weights first run out of registers. */
#define EK_TAP(even, odd, x, weight, tap) do { \\
        int16x8_t w_; \\
        int32x4_t product_; \\
        __asm__ volatile("vldrb.s16 %q[w], [%[from], %[offset]]\\n\\t" \\
            "vmullb.s16 %q[p], %q[v], %q[w]\\n\\tvadd.i32 %q[e], %q[e], %q[p]\\n\\t" \\
            "vmullt.s16 %q[p], %q[v], %q[w]\\n\\tvadd.i32 %q[o], %q[o], %q[p]" \\
            : [e] "+w"(even), [o] "+w"(odd), [w] "=&w"(w_), [p] "=&w"(product_) \\
            : [v] "w"(x), [from] "l"(weight), [offset] "n"(8 * (tap)) : "memory"); \\
    } while (0)
"""
_MOST_TAPS = 49
"""The most taps of a window: they are written one by one, and more would be a long function."""


def offer(step: Step, operator: DepthwiseConv2D) -> Kernel | Declined:
    channels = operator.source.channels
    height, width = operator.window.kernel
    if operator.multiplier != 1:
        return Declined("several outputs are made of one channel")
    if channels % 8:
        return Declined("channels do not come in eights")
    if operator.window.dilations != (1, 1):
        return Declined("the window is dilated")
    if height * width > _MOST_TAPS:
        return Declined(f"the window has more than {_MOST_TAPS} values")
    if width > 16:
        return Declined("the window is wider than 16")
    reason = rescaling.why_not(operator.rescale)
    if reason:
        return Declined(reason)
    row = _row(operator)
    fours = [
        [8 * n + odd + 2 * i for i in range(4)] for n in range(channels // 8) for odd in (0, 1)
    ]
    # Rows are in the ring before results overwrite as many rows.
    in_place = (
        operator.result.width <= operator.source.width
        and operator.window.padding[0] < operator.window.kernel[0]
    )
    restrict = "" if in_place else "restrict "
    name, body = _function(operator, row, restrict)
    source = f"""\
static void {step.name}(const int8_t *{restrict}input, int8_t *{restrict}output, void *scratch)
{{
    {name}(input, output, (int8_t *)scratch, {step.name}_weights, {step.name}_scales);
}}
"""
    return Kernel(
        maker="edgekit mve",
        source=source,
        constants=(
            Constant("weights", _weights(operator), 16),
            Constant("scales", rescaling.table(operator.rescale, first_sums(operator), fours), 16),
        ),
        helpers=(
            *(APART, text.COPY, text.FILL, _TAP, rescaling.helper(operator.rescale)),
            *(rescaling.STORE_EIGHT, body),
        ),
        headers=rescaling.HEADERS,
        scratch=row * height,
        in_place=((0, 0),) if in_place else (),
        instructions=_instructions(operator, row),
        note="eight channels of two pixels at a time",
    )


def _row(operator: DepthwiseConv2D) -> int:
    """Return the bytes of a row with its padding."""
    right = operator.window.strides[1]
    columns = (operator.result.width - 1) * right + operator.window.kernel[1]
    return operator.source.channels * max(
        columns, operator.window.padding[1] + operator.source.width
    )


def _weights(operator: DepthwiseConv2D) -> Array:
    """Pack weights by eight channels, row, column."""
    import numpy as np

    weights = np.asarray(operator.weights, np.int8)
    taps = weights.shape[0] * weights.shape[1]
    arranged = weights.reshape(taps, -1, 8).transpose(1, 0, 2)
    return np.ascontiguousarray(arranged).reshape(-1)


def _function(operator: DepthwiseConv2D, row: int, restrict: str) -> tuple[str, str]:
    source, result = operator.source, operator.result
    channels, zero = source.channels, operator.zero_point
    height, width = operator.window.kernel
    down = operator.window.strides[0]
    top, left, _, _ = operator.window.padding
    inside = source.width * channels
    after = row - left * channels - inside
    margins = [f"ek_fill(to, {zero}, {left * channels});"] if left else []
    if after:
        margins += [f"ek_fill(to + {left * channels + inside}, {zero}, {after});"]
    lines = [
        f"int32_t next = -{top};",
        f"for (int32_t y = 0; y < {result.height}; y++) {{",
        f"    const int32_t top = y * {down} - {top};",
        f"    for (; next < top + {height}; next++) {{",
        f"        int8_t *to = ring + (next + {height * top}) % {height} * {row};",
        "        if (next < top) {",
        "            continue;",
        "        }",
        f"        if (next < 0 || next >= {source.height}) {{",
        f"            ek_fill(to, {zero}, {row});",
        "            continue;",
        "        }",
        *(f"        {line}" for line in margins),
        f"        ek_copy(to + {left * channels}, input + next * {inside}, {inside});",
        "    }",
    ]
    for n in range(height):
        lines += [
            f"    const int8_t *row_{n} = ring + (top + {n} + {height * top}) % {height} * {row};"
        ]
    pairs = result.width // 2
    group = [
        f"for (int32_t channel = 0; channel < {channels}; channel += 8) {{",
        f"    const int8_t *weight = weights + channel * {height * width};",
        "    const int32_t *scale = scales + channel * 3;",
        *(f"    const int8_t *from_{n} = row_{n} + channel;" for n in range(height)),
        "    int8_t *to = output + channel;",
    ]
    if pairs:
        group += [f"    for (int32_t x = 0; x < {pairs}; x++) {{"]
        group += [f"        {line}" for line in _pixels(operator, 2)]
        group += ["    }"]
    if result.width % 2:
        group += ["    {", *(f"        {line}" for line in _pixels(operator, 1)), "    }"]
    group += ["}"]
    lines += [*(f"    {line}" for line in group)]
    lines += [f"    output += {result.width * channels};", "}"]
    signature = (
        f"static EK_APART void @NAME@(const int8_t *{restrict}input, int8_t *{restrict}output,\n"
        "    int8_t *restrict ring, const int8_t *restrict weights,\n"
        "    const int32_t *restrict scales)\n"
    )
    return shared(f"depthwise_{channels}", signature, lines)


def _pixels(operator: DepthwiseConv2D, pixels: int) -> list[str]:
    """Return C for neighbouring pixels of eight channels: they share weights and loads."""
    channels, rescale = operator.source.channels, operator.rescale
    height, width = operator.window.kernel
    right = operator.window.strides[1]
    lines = []
    for n in range(pixels):
        start = ("vldrwq_s32(scale)", "vldrwq_s32(scale + 12)") if n == 0 else ("even_0", "odd_0")
        lines += [f"int32x4_t even_{n} = {start[0]}, odd_{n} = {start[1]};"]
    lines += ["int16x8_t eight;"]
    for row in range(height):
        columns = sorted({n * right + tap for n in range(pixels) for tap in range(width)})
        for index, column in enumerate(columns):
            taps = {n: column - n * right for n in range(pixels)}
            taps = {n: tap for n, tap in taps.items() if 0 <= tap < width}
            lines += [f"eight = ek_eight(from_{row});"]
            ahead = columns[index + 1] if index + 1 < len(columns) else pixels * right
            if ahead != column:
                lines += [f"from_{row} += {(ahead - column) * channels};"]
            lines += [
                f"EK_TAP(even_{n}, odd_{n}, eight, weight + {8 * width * row}, {tap});"
                for n, tap in taps.items()
            ]
    name = rescaling.name(rescale)
    limits = f"{rescale.zero_point}, {rescale.low}, {rescale.high}"
    for n in range(pixels):
        lines += [
            f"even_{n} = {name}(even_{n}, vldrwq_s32(scale + 4), vldrwq_s32(scale + 8));",
            f"odd_{n} = {name}(odd_{n}, vldrwq_s32(scale + 16), vldrwq_s32(scale + 20));",
            f"ek_store_eight(to, even_{n}, odd_{n}, {limits});",
            f"to += {channels};",
        ]
    return lines


def _instructions(operator: DepthwiseConv2D, row: int) -> int:
    taps = operator.window.kernel[0] * operator.window.kernel[1]
    result = operator.result
    groups = operator.source.channels // 8
    copied = operator.source.height * (20 + row // 16 * 5)
    a_pair = taps * 13 + 50
    pairs = -(-result.width // 2)
    return copied + result.height * (30 + groups * (15 + pairs * a_pair))
