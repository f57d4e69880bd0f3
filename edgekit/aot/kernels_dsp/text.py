"""C that kernels with DSP instructions share, the same for every layer."""

from __future__ import annotations

HEADERS = ("arm_acle.h",)

LOAD_WORD = """\
/* Four stored values; an unaligned address costs nothing on this CPU. */
static inline uint32_t ek_load_word(const int8_t *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}
"""

LOAD_PAIR = """\
static inline int16x2_t ek_load_pair(const int16_t *from)
{
    int16x2_t pair;
    memcpy(&pair, from, sizeof pair);
    return pair;
}
"""

STORE_PAIR = """\
static inline void ek_store_pair(int16_t *to, int16x2_t pair)
{
    memcpy(to, &pair, sizeof pair);
}
"""

EVEN_ODD = """\
/* Bytes 0 and 2 of a word as a pair of int16, and bytes 1 and 3. */
static inline int16x2_t ek_even_bytes(uint32_t word)
{
    return __sxtb16((int8x4_t)word);
}

static inline int16x2_t ek_odd_bytes(uint32_t word)
{
    int16x2_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
}
"""

PACK = """\
/* The low halves of two pairs, and the high ones. */
static inline int16x2_t ek_low_halves(int16x2_t first, int16x2_t second)
{
    int16x2_t pair;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(pair) : "r"(first), "r"(second));
    return pair;
}

static inline int16x2_t ek_high_halves(int16x2_t first, int16x2_t second)
{
    int16x2_t pair;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(pair) : "r"(second), "r"(first));
    return pair;
}
"""

KEEP_ORDER = """\
/* Keeps loads in place: compilers that load far ahead run out of registers. */
#define EK_KEEP_ORDER __asm__ volatile("" ::: "memory")
"""

ROUND_HIGH = """\
/* sum * m / 2**31, rounded as LiteRT rounds first; `twice` is 2 * m - 2**32. */
static inline int32_t ek_round_high(int32_t sum, int32_t twice)
{
    int32_t high;
    __asm__("smmlar %0, %1, %2, %1" : "=r"(high) : "r"(sum), "r"(twice));
    return high;
}
"""

ADD_HIGH = """\
/* before + floor(sum * m / 2**32) */
static inline int32_t ek_add_high(int32_t sum, int32_t m, int32_t before)
{
    int32_t high;
    __asm__("smmla %0, %1, %2, %3" : "=r"(high) : "r"(sum), "r"(m), "r"(before));
    return high;
}
"""

ADD_SIGN = """\
/* A half is to be rounded away from zero: one less below zero. */
static inline int32_t ek_add_sign(int32_t value, int32_t half)
{
    return value + (value >> 31) + half;
}
"""

SATURATE = """\
static inline int8_t ek_saturate(int32_t value)
{
    int32_t stored;
    __asm__("ssat %0, #8, %1" : "=r"(stored) : "r"(value));
    return (int8_t)stored;
}
"""

CLAMP = """\
static inline int8_t ek_clamp(int32_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}
"""

WIDEN = """\
/* int8 to int16, in the order 0 2 1 3 of each four, which is the cheapest. */
static inline void ek_widen(const int8_t *restrict from, int16_t *restrict to, uint32_t count)
{
    const int8_t *end = from + count;
    for (; from != end; from += 4, to += 4) {
        const uint32_t word = ek_load_word(from);
        ek_store_pair(to + 0, ek_even_bytes(word));
        ek_store_pair(to + 2, ek_odd_bytes(word));
    }
}
"""

WIDEN_16 = """\
/* ek_widen of a multiple of 16. */
static inline void ek_widen_16(const int8_t *restrict from, int16_t *restrict to, uint32_t count)
{
    const int8_t *end = from + count;
    for (; from != end; from += 16, to += 16) {
        uint32_t word = ek_load_word(from);
        ek_store_pair(to + 0, ek_even_bytes(word));
        ek_store_pair(to + 2, ek_odd_bytes(word));
        word = ek_load_word(from + 4);
        ek_store_pair(to + 4, ek_even_bytes(word));
        ek_store_pair(to + 6, ek_odd_bytes(word));
        word = ek_load_word(from + 8);
        ek_store_pair(to + 8, ek_even_bytes(word));
        ek_store_pair(to + 10, ek_odd_bytes(word));
        word = ek_load_word(from + 12);
        ek_store_pair(to + 12, ek_even_bytes(word));
        ek_store_pair(to + 14, ek_odd_bytes(word));
    }
}
"""

FILL = """\
static inline void ek_fill_16(int16_t *to, int16_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        to[i] = value;
    }
}
"""


def tile(pixels: int) -> str:
    """Return the innermost step: two values of the window, two output channels, `pixels` pixels."""
    lines = [
        "uint32_t both_ = ek_load_word(weights);",
        "const int16x2_t wa_ = ek_even_bytes(both_), wb_ = ek_odd_bytes(both_);",
        "int16x2_t x_;",
    ]
    for pixel in range(pixels):
        lines += [
            "EK_KEEP_ORDER;",
            f"x_ = ek_load_pair(window + {pixel} * (stride));",
            f"a{pixel} = __smlad(wa_, x_, a{pixel});",
            f"b{pixel} = __smlad(wb_, x_, b{pixel});",
        ]
    body = " \\\n".join(f"        {line}" for line in lines)
    return (
        f"/* Two values of {pixels} windows, which lie `stride` apart, times the weights of\n"
        "   two output channels: into a0 and b0 and so on. */\n"
        f"#define EK_TILE_{pixels}(window, stride, weights) \\\n"
        "    do { \\\n" + body + " \\\n    } while (0)\n"
    )
