"""Average pooling, four channels at a time in two pairs of int16."""

from __future__ import annotations

from edgekit.aot.kernel import Declined, Kernel
from edgekit.aot.kernels_dsp import text
from edgekit.aot.operators import AveragePool
from edgekit.aot.program import Step

_MEAN = """\
/* sum / count, halves away from zero. */
static inline int32_t ek_mean(int32_t sum, int32_t count)
{
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}
"""


def offer(step: Step, operator: AveragePool) -> Kernel | Declined:
    source, result, window = operator.source, operator.result, operator.window
    channels = source.channels
    high, wide = window.kernel
    if channels % 4:
        return Declined("channels do not come in fours")
    if high * wide > 255:
        return Declined("the window's sum does not fit into 16 bits")
    if window.dilations != (1, 1):
        return Declined("the window is dilated")
    down, right = window.strides
    top, left, _, _ = window.padding
    full = (operator.low, operator.high) == (-128, 127)

    def stored(value: str) -> str:
        mean = f"ek_mean({value}, count)"
        return f"(int8_t){mean}" if full else f"ek_clamp({mean}, {operator.low}, {operator.high})"

    code = f"""\
static void {step.name}(const int8_t *restrict input, int8_t *restrict output)
{{
    for (int32_t y = 0; y < {result.height}; y++) {{
        const int32_t top = y * {down} - {top};
        const int32_t first_row = top < 0 ? 0 : top;
        const int32_t last_row = top + {high} < {source.height} ? top + {high} : {source.height};
        for (int32_t x = 0; x < {result.width}; x++) {{
            const int32_t left = x * {right} - {left};
            const int32_t first = left < 0 ? 0 : left;
            const int32_t last = left + {wide} < {source.width} ? left + {wide} : {source.width};
            const int32_t count = (last_row - first_row) * (last - first);
            for (int32_t channel = 0; channel < {channels}; channel += 4) {{
                int16x2_t even = 0, odd = 0;
                for (int32_t row = first_row; row < last_row; row++) {{
                    const int8_t *from = input + channel
                        + (row * {source.width} + first) * {channels};
                    for (int32_t column = first; column < last; column++, from += {channels}) {{
                        const uint32_t word = ek_load_word(from);
                        even = __sadd16(even, ek_even_bytes(word));
                        odd = __sadd16(odd, ek_odd_bytes(word));
                    }}
                }}
                output[0] = {stored("(int16_t)even")};
                output[1] = {stored("(int16_t)odd")};
                output[2] = {stored("even >> 16")};
                output[3] = {stored("odd >> 16")};
                output += 4;
            }}
        }}
    }}
}}
"""
    helpers = (text.LOAD_WORD, text.EVEN_ODD, _MEAN, *(() if full else (text.CLAMP,)))
    groups = result.height * result.width * channels // 4
    return Kernel(
        maker="edgekit dsp",
        source=code,
        helpers=helpers,
        headers=text.HEADERS,
        instructions=40 + groups * (60 + high * 6 + high * wide * 4),
        note="four channels at a time",
    )
