"""Every quantised operator of TFLite against LiteRT's reference kernels, at random shapes, scales
and zero points, in a library for this machine and in C for microcontrollers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.c_builds import SANITIZED, built_tree, run
from support.examples import one_of
from support.integer_cases import CASES, drawn
from support.tflite_models import run_both, write_model

from edgekit.models.tflite.operators import COMPUTED_QUANTIZED

OFF_BY_ONE = frozenset({"SOFTMAX", "TRANSPOSE_CONV"})
"""Operators that LiteRT computes in floats and C in integers, and the other way round."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", one_of(0, 1))
def test_a_library_gives_the_numbers_of_litert(name: str, seed: int, tmp_path: Path) -> None:
    check_library(name, seed, tmp_path)


@pytest.mark.parametrize(("name", "seed"), [("EQUAL", 5), ("LESS", 6), ("ARG_MAX", 11)])
def test_a_library_gives_what_was_wrong_once(name: str, seed: int, tmp_path: Path) -> None:
    """Comparisons in whole 256ths, and a row of the lowest values."""
    check_library(name, seed, tmp_path)


@pytest.mark.operators
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_libraries_give_the_numbers_of_litert(name: str, seed: int, tmp_path: Path) -> None:
    check_library(name, seed, tmp_path)


def check_library(name: str, seed: int, folder: Path) -> None:
    case = drawn(name, seed)
    found, expected = run_both(write_model(folder, case.content), case.feeds)
    assert found["r"].shape == expected["r"].shape
    off = np.abs(found["r"].astype("float64") - expected["r"].astype("float64"))
    assert off.max(initial=0) <= (name in OFF_BY_ONE)


@pytest.mark.parametrize("name", CASES)
def test_c_gives_the_numbers_of_litert(name: str, tmp_path: Path) -> None:
    check_c(name, 1, tmp_path)


@pytest.mark.parametrize(("name", "seed"), [("EQUAL", 5), ("ARG_MIN", 2), ("TRANSPOSE_CONV", 3)])
def test_c_gives_what_was_wrong_or_refused_once(name: str, seed: int, tmp_path: Path) -> None:
    """Comparisons in whole 256ths, a row of the highest values, and a step of one pixel."""
    check_c(name, seed, tmp_path)


@pytest.mark.operators
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2, 8))
def test_much_c_gives_the_numbers_of_litert(name: str, seed: int, tmp_path: Path) -> None:
    check_c(name, seed, tmp_path)


def check_c(name: str, seed: int, folder: Path) -> None:
    source = write_model(folder, drawn(name, seed).content)
    built = built_tree(source.path, folder / "net", "net")
    inputs = ", ".join(f"input_{k}" for k in range(len(built.inputs)))
    (folder / "main.c").write_text(_MAIN.replace("INPUTS", inputs), encoding="utf-8")
    parts = ["main.c", "net/net.c", "-Inet", "-Inet/test", "-lm", "-o", "main"]
    run(["gcc", "-std=gnu99", *SANITIZED, *parts], folder).check_returncode()
    done = run(["./main"], folder)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= (name in OFF_BY_ONE)


_MAIN = """\
#include <math.h>
#include <stdio.h>
#include "net.h"
#include "vectors.h"
static unsigned char arena[NET_ARENA_BYTES] __attribute__((aligned(NET_ARENA_ALIGNMENT)));
int main(void)
{
    static net_outputs outputs;
    static unsigned char found[sizeof expected_0] __attribute__((aligned(16)));
    const net_inputs inputs = {INPUTS};
    double worst = 0.0;
    outputs = (net_outputs){(void *)found};
    if (net_check() != 0 || net_run(&inputs, &outputs, arena) != 0) return 2;
    for (unsigned i = 0; i < sizeof expected_0 / sizeof expected_0[0]; ++i) {
        const double off =
            fabs((double)((const __typeof__(expected_0[0]) *)(void *)found)[i]
                - (double)expected_0[i]);
        if (!(off <= worst)) worst = off;
    }
    printf("%.17g\\n", worst);
    return 0;
}
"""


def test_every_computed_operator_is_in_the_table() -> None:
    elsewhere = {"BATCH_MATMUL"}  # tests/support/tflite_operators.py
    assert set(CASES) >= COMPUTED_QUANTIZED - {"SHAPE"} - elsewhere
