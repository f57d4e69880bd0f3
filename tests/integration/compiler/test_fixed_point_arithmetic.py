"""The expressions that a quantised model runs, compiled, against LiteRT's rounding in integers.

test_fixed_point.py proves the short forms; this proves that the expressions are them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from edgekit.base.tvm_compat import load_tvm

load_tvm()

import tvm  # noqa: E402
from tvm import te, tirx  # noqa: E402

from edgekit.compiler.passes.fixed_point import (  # noqa: E402
    elementwise,
    fixed_point,
    multiply_by,
    multiply_rounding_once,
    round_half_away,
    saturate,
)

FACTORS = (0.5, 0.25, 2.0**-10, 0.0003, 0.3, 0.75, 0.999, 1.0, 1.5, 3.7)
RANDOM = np.random.default_rng(3)
WHOLE = np.concatenate(
    [np.arange(-300, 301), RANDOM.integers(-(2**24), 2**24, 2000)], dtype="int32", casting="unsafe"
)


def computed(values: np.ndarray, expression: Callable[[Any], Any]) -> np.ndarray:
    """The expression of every value, compiled for this machine."""
    source = te.placeholder(values.shape, str(values.dtype), name="source")
    result = elementwise(source, lambda value, index: expression(value))
    function = te.create_prim_func([source, result]).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": function}), tvm.target.Target("llvm"))
    out = tvm.runtime.tensor(np.zeros(values.shape, str(result.dtype)))
    library["main"](tvm.runtime.tensor(values), out)
    found: np.ndarray = out.numpy()
    return found


def half_away(value: Fraction) -> int:
    return int(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def rounded_twice(value: int, factor: float) -> int:
    """Round to 32 bits with ties up, then without the power of two, ties away from zero."""
    number = fixed_point(factor)
    product = Fraction(value * number.mantissa * 2 ** max(number.exponent, 0), 2**31)
    high = math.floor(product + Fraction(1, 2))
    return half_away(Fraction(high, 2 ** max(-number.exponent, 0)))


def rounded_once(value: int, factor: float) -> int:
    """Ties away from zero."""
    number = fixed_point(factor)
    return half_away(value * number.mantissa * Fraction(2) ** (number.exponent - 31))


@pytest.mark.parametrize("factor", FACTORS)
def test_a_product_is_rounded_twice_as_litert_does(factor: float) -> None:
    found = computed(WHOLE, lambda value: multiply_by(value, fixed_point(factor)))

    assert found.tolist() == [rounded_twice(int(value), factor) for value in WHOLE]


@pytest.mark.parametrize("factor", FACTORS)
def test_a_product_of_a_dense_layer_is_rounded_once(factor: float) -> None:
    mantissa, shift = fixed_point(factor).parts[:2]

    found = computed(
        WHOLE,
        lambda value: multiply_rounding_once(
            value, tirx.const(mantissa, "int64"), tirx.const(shift, "int64")
        ),
    )

    assert found.tolist() == [rounded_once(int(value), factor) for value in WHOLE]


def test_floats_are_rounded_to_the_nearest_and_ties_away_from_zero() -> None:
    values = np.concatenate(
        [np.arange(-9, 9.25, 0.25), [0.49999997, -0.49999997, 8388607.5, -8388607.5]]
    ).astype("float32")

    found = computed(values, round_half_away)

    assert found.tolist() == [half_away(Fraction(float(value))) for value in values]


def test_what_is_out_of_range_becomes_the_nearest_end() -> None:
    found = computed(WHOLE, lambda value: saturate(value, -100, 90, "int8"))

    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.clip(WHOLE, -100, 90))
