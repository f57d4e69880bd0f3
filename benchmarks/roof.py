"""What this machine can do at most: float32 arithmetic and reading memory, by small kernels."""

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

SOURCE = """
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
"""


@dataclass(frozen=True)
class Roof:
    threads: int
    flops: float
    """Additions and multiplications a second."""
    bytes: float
    """Read from memory a second."""

    def seconds(self, flops: float, size: float) -> float:
        """The least that so much arithmetic and so many bytes take."""
        return max(flops / self.flops, size / self.bytes)


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

        def read(number: int) -> None:
            library.reading(ctypes.c_void_p(data.ctypes.data + 4 * number * part), part)

        def read_piece(try_number: int) -> float:
            first = try_number % pieces * threads
            return _seconds(pool, read, range(first, first + threads))

        with ThreadPoolExecutor(threads) as pool:
            fastest = min(_seconds(pool, compute, range(threads)) for _ in range(TRIES))
            flops = 2.0 * ARITHMETIC_STEPS * SUMS * lanes * threads / fastest
            size = 4.0 * part * threads
            return Roof(threads, flops, size / min(read_piece(number) for number in range(TRIES)))


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
    library.reading.argtypes = [ctypes.c_void_p, ctypes.c_long]
    library.arithmetic.restype = library.reading.restype = ctypes.c_float
    return library


def _seconds(pool: ThreadPoolExecutor, work: Callable[[int], None], parts: range) -> float:
    started = time.perf_counter()
    list(pool.map(work, parts))
    return time.perf_counter() - started
