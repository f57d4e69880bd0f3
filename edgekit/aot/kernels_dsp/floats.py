"""Quantise float inputs in nine instructions per value."""

from __future__ import annotations

from edgekit.aot.kernel import Declined, Kernel
from edgekit.aot.operators import Quantize
from edgekit.aot.program import Step

_QUANTIZE = """\
#if !defined(__ARM_FP)
#error "this needs the floating-point unit: compile it with the flags in README.md"
#endif
/* Halves go away from zero: twice the value is cut to an integer, and halved again. */
static inline int8_t ek_quantize(float value, float scale, int32_t offset)
{
    float ratio = value / scale;
    int32_t twice;
    __asm__("vcvt.s32.f32 %0, %0, #1" : "+t"(ratio));
    memcpy(&twice, &ratio, sizeof twice);
    __asm__("ssat %0, #16, %1" : "=r"(twice) : "r"(twice));
    twice += (twice >> 31) + offset;
    __asm__("ssat %0, #8, %1, asr #1" : "=r"(twice) : "r"(twice));
    return (int8_t)twice;
}
"""


def offer(step: Step, operator: Quantize, features: tuple[str, ...]) -> Kernel | Declined:
    if "fpu-single" not in features:
        return Declined("the CPU has no floating-point unit")
    four = 4 if operator.elements % 4 == 0 else 1
    offset = 2 * operator.zero_point + 1
    scale = f"{float(operator.scale).hex()}f"
    lines = "".join(
        f"        output[{n}] = ek_quantize(input[{n}], {scale}, {offset});\n" for n in range(four)
    )
    source = f"""\
static void {step.name}(const float *input, int8_t *output)
{{
    const float *end = input + {operator.elements};
    for (; input != end; input += {four}, output += {four}) {{
{lines}    }}
}}
"""
    return Kernel(
        maker="edgekit dsp",
        source=source,
        helpers=(_QUANTIZE,),
        in_place=((0, 0),),
        instructions=20 + 10 * operator.elements,
        note="rounded by the conversion to fixed point",
    )
