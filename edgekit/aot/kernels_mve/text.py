"""C that kernels with vector instructions share, the same for every layer."""

from __future__ import annotations

COPY = """\
static inline void ek_copy(int8_t *restrict to, const int8_t *restrict from, int32_t count)
{
    for (; count >= 16; count -= 16, to += 16, from += 16) {
        vst1q_s8(to, vld1q_s8(from));
    }
    if (count) {
        const mve_pred16_t rest = vctp8q((uint32_t)count);
        vstrbq_p_s8(to, vldrbq_z_s8(from, rest), rest);
    }
}
"""

FILL = """\
static inline void ek_fill(int8_t *to, int8_t value, int32_t count)
{
    const int8x16_t values = vdupq_n_s8(value);
    for (; count >= 16; count -= 16, to += 16) {
        vst1q_s8(to, values);
    }
    if (count) {
        vstrbq_p_s8(to, values, vctp8q((uint32_t)count));
    }
}
"""


FOUR_SUMS = """\
/* Sixteen values of a window against four channels, whose weights lie one after another. In
   assembly, for compilers move the sums between registers: the instruction takes even ones. */
#define EK_FOUR_SUMS(instruction, kind, load) \\
    __asm__ volatile(load "\\n\\t" \\
        "vldrb.8 %q[w], [%[weight]], #16\\n\\t" instruction " %[a], %q[x], %q[w]\\n\\t" \\
        "vldrb.8 %q[w], [%[weight]], #16\\n\\t" instruction " %[b], %q[x], %q[w]\\n\\t" \\
        "vldrb.8 %q[w], [%[weight]], #16\\n\\t" instruction " %[c], %q[x], %q[w]\\n\\t" \\
        "vldrb.8 %q[w], [%[weight]], #16\\n\\t" instruction " %[d], %q[x], %q[w]" \\
        : [a] kind "Te"(a), [b] kind "Te"(b), [c] kind "Te"(c), [d] kind "Te"(d), \\
          [x] "=&w"(x), [w] "=&w"(w), [from] "+&r"(from), [weight] "+&r"(weight) \\
        : [rest] "r"(rest) : "memory", "cc")
#define EK_LOAD_ALL "vldrb.8 %q[x], [%[from]], #16"
#define EK_LOAD_REST "vctp.8 %[rest]\\n\\tvpst\\n\\tvldrbt.8 %q[x], [%[from]], #16"

static inline int32x4_t ek_four(int32_t a, int32_t b, int32_t c, int32_t d)
{
    int32x4_t four;
    __asm__("vmov %q0[2], %q0[0], %1, %3\\n\\tvmov %q0[3], %q0[1], %2, %4"
        : "=&w"(four) : "r"(a), "r"(b), "r"(c), "r"(d));
    return four;
}
"""
