"""What this machine can do at most, by small kernels: arithmetic in float32 and in small integers,
reading memory, and copying as much as fits into each cache."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgekit.compiler.work import Work
from edgekit.cross.toolchain import find_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain

ARITHMETIC_STEPS = 200_000
SUMS = 12
READ_BYTES = 128 << 20
PIECE_BYTES = 8 << 20
"""The bytes of one try: tries are short, since a busy machine interrupts the long ones, and each
reads another piece."""
TRIES = 200
COPIES = 30
FOOTPRINTS = (1 << 18, 1 << 22, 1 << 26)
"""The bytes that a copy reads and writes: of a core's own caches, of the shared one, of memory."""

SOURCE = """
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* The sums of one step: an int32 of each lane, over PRODUCTS multiplications in all. */
#if defined(__AVX512VNNI__)
typedef __m512i ints;
enum { PRODUCTS = 64 };
static ints products(ints sum, ints a, ints b) { return _mm512_dpbusd_epi32(sum, a, b); }
#elif defined(__AVXVNNI__)
typedef __m256i ints;
enum { PRODUCTS = 32 };
static ints products(ints sum, ints a, ints b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
#elif defined(__AVX512BW__)
typedef __m512i ints;
enum { PRODUCTS = 32 };
static ints products(ints sum, ints a, ints b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
#elif defined(__AVX2__)
typedef __m256i ints;
enum { PRODUCTS = 16 };
static ints products(ints sum, ints a, ints b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
#elif defined(__SSE2__)
typedef __m128i ints;
enum { PRODUCTS = 8 };
static ints products(ints sum, ints a, ints b) {
  return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t ints;
enum { PRODUCTS = 16 };
static ints products(ints sum, ints a, ints b) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
#elif defined(__ARM_NEON)
typedef int32x4_t ints;
enum { PRODUCTS = 8 };
static ints products(ints sum, ints a, ints b) {
  int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(b);
  return vpadalq_s16(sum, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
}
#else
typedef unsigned ints __attribute__((vector_size(LANES * 4)));
enum { PRODUCTS = LANES };
static ints products(ints sum, ints a, ints b) { return sum + a * b; }
#endif

int products_a_step(void) { return PRODUCTS * SUMS; }

int integers(long steps) {
  enum { WIDTH = sizeof(ints) / sizeof(int) };
  ints a[SUMS], x;
  int numbers[SUMS * WIDTH], all = 0;
  /* Sums that began equal would be one. */
  for (int i = 0; i < SUMS * WIDTH; ++i) numbers[i] = (int)steps + i;
  memcpy(a, numbers, sizeof a);
  memcpy(&x, numbers, sizeof x);
  for (long s = 0; s < steps; ++s) {
    /* Each step multiplies what the last one made: no compiler moves that out of the loop. */
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; ++i) a[i] = products(a[i], a[i], x);
  }
  memcpy(numbers, a, sizeof a);
  for (int i = 0; i < SUMS * WIDTH; ++i) all ^= numbers[i];
  return all;
}
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

float arithmetic(long steps) {
  vec a[SUMS];
  float seed = (float)steps * 1e-9f;
  vec x = (vec){0} + 0.999f + seed, y = (vec){0} + seed;
  for (int i = 0; i < SUMS; ++i) a[i] = (vec){0} + (float)i;
  for (long s = 0; s < steps; ++s) {
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; ++i) a[i] = a[i] * x + y;
  }
  float all = 0;
  for (int i = 0; i < SUMS; ++i)
    for (int k = 0; k < LANES; ++k) all += a[i][k];
  return all;
}

float reading(const float *data, long count) {
  vec a[8] = {0};
  for (long s = 0; s + 8 * LANES <= count; s += 8 * LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] += *(const vec *)(data + s + i * LANES);
  }
  float all = 0;
  for (int i = 0; i < 8; ++i)
    for (int k = 0; k < LANES; ++k) all += a[i][k];
  return all;
}

void copying(float *to, const float *from, long count) {
  for (long s = 0; s + LANES <= count; s += LANES) *(vec *)(to + s) = *(const vec *)(from + s);
  __asm__ volatile("" : : "r"(to) : "memory");
}
"""


@dataclass(frozen=True)
class Copying:
    fits: int
    """The most bytes, read and written, for which it holds."""
    bytes: float
    """Read and written a second."""


@dataclass(frozen=True)
class Roof:
    threads: int
    flops: float
    """Additions and multiplications a second."""
    bytes: float
    """Read from memory a second."""
    integers: float
    """Additions and multiplications of small integers a second."""
    copied: tuple[Copying, ...]
    """The smallest copies first."""

    def seconds(self, work: Work) -> float:
        """Return the least time that the work takes."""
        arithmetic = work.flops / self.flops + work.integers / self.integers
        fits = (copy for copy in self.copied if work.bytes <= copy.fits)
        return max(arithmetic, work.bytes / next(fits, self.copied[-1]).bytes)


def measure_roof(threads: int, lanes: int) -> Roof:
    """The best of several tries: whatever else the machine does only takes away."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        library = _compiled(Path(folder), lanes)
        data = np.ones(READ_BYTES // 4, "float32")
        data.fill(1)
        part = PIECE_BYTES // 4 // threads
        pieces = data.size // (PIECE_BYTES // 4)

        def compute(_: int) -> None:
            library.arithmetic(ARITHMETIC_STEPS)

        def multiply(_: int) -> None:
            library.integers(ARITHMETIC_STEPS)

        def copy(size: int) -> float:
            """Return the bytes a second of copies between two halves of so many bytes."""
            part, times = size // 8 // threads, max(PIECE_BYTES // size, 1)
            source, target = data[: size // 8], data[size // 8 : size // 4]

            def work(number: int) -> None:
                for _ in range(times):
                    library.copying(
                        ctypes.c_void_p(target.ctypes.data + 4 * number * part),
                        ctypes.c_void_p(source.ctypes.data + 4 * number * part),
                        part,
                    )

            fastest = min(_seconds(pool, work, range(threads)) for _ in range(COPIES))
            return 8.0 * part * threads * times / fastest

        def read(number: int) -> None:
            library.reading(ctypes.c_void_p(data.ctypes.data + 4 * number * part), part)

        def read_piece(try_number: int) -> float:
            first = try_number % pieces * threads
            return _seconds(pool, read, range(first, first + threads))

        with ThreadPoolExecutor(threads) as pool:
            fastest = min(_seconds(pool, compute, range(threads)) for _ in range(TRIES))
            flops = 2.0 * ARITHMETIC_STEPS * SUMS * lanes * threads / fastest
            size = 4.0 * part * threads
            reading = size / min(read_piece(number) for number in range(TRIES))
            done = 2.0 * ARITHMETIC_STEPS * library.products_a_step() * threads
            integers = done / min(_seconds(pool, multiply, range(threads)) for _ in range(TRIES))
            copied = tuple(Copying(size, copy(size)) for size in FOOTPRINTS)
            return Roof(threads, flops, reading, integers, copied)


def _compiled(folder: Path, lanes: int) -> ctypes.CDLL:
    source, made = folder / "roof.c", folder / "roof.so"
    source.write_text(SOURCE)
    compiler = find_compiler(load_toolchain(load_board("local").toolchain))
    options = ["-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
    defined = [f"-DLANES={lanes}", f"-DSUMS={SUMS}"]
    subprocess.run(
        [*compiler.command, *options, *defined, "-o", os.fspath(made), os.fspath(source)],
        check=True,
    )
    library = ctypes.CDLL(os.fspath(made))
    library.arithmetic.argtypes = [ctypes.c_long]
    library.integers.argtypes = [ctypes.c_long]
    library.copying.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    library.copying.restype = None
    library.reading.argtypes = [ctypes.c_void_p, ctypes.c_long]
    library.arithmetic.restype = library.reading.restype = ctypes.c_float
    return library


def _seconds(pool: ThreadPoolExecutor, work: Callable[[int], None], parts: range) -> float:
    started = time.perf_counter()
    list(pool.map(work, parts))
    return time.perf_counter() - started
