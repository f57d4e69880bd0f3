"""exp, tanh, sigmoid and erf as polynomials: compared with double precision, in units of the last
place, everywhere and at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from support.compiling import compiled_from, one_node_model, results_of

ODD = [
    *[0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38],
    *[88.7228, 88.73, 89.0, -87.33, -87.34, -103.97, -103.98, -104.0, -150.0],
    *[0.625, -0.625, 0.62499994, 4.0, -4.0, 3.9999998, 9.0, -9.0, 0.34657359, -0.34657359],
]
FINE = np.concatenate(
    [
        np.array(ODD),
        np.linspace(-110, 95, 4001),
        np.linspace(-1, 1, 4001),
        np.geomspace(1e-40, 10, 2000),
        -np.geomspace(1e-40, 10, 2000),
    ]
).astype("float32")


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def exact(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    def safe(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return np.array([safe(float(x)) for x in values])


def ulps(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The error in units of the last place of the right answer in single precision."""
    rounded = wanted.astype("float32")
    spacing = np.maximum(np.spacing(np.abs(rounded)), np.float32(1e-45)).astype("float64")
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype("float64") - wanted) / spacing
    return np.where(found == rounded, 0.0, error)


@pytest.mark.parametrize(
    ("operator", "function", "most", "absolute"),
    [
        ("Exp", math.exp, 2.0, 0.0),
        ("Tanh", math.tanh, 3.0, 0.0),
        ("Sigmoid", sigmoid, 4.0, 1e-38),
        ("Erf", math.erf, 8.0, 1e-37),
    ],
)
def test_vector_math_is_right_to_a_few_units_of_the_last_place(
    operator: str, function: Callable[[float], float], most: float, absolute: float
) -> None:
    compiled = compiled_from(one_node_model(operator, FINE.shape))
    found = results_of(compiled, [FINE])[0]
    wanted = exact(function, FINE)

    nan = np.isnan(FINE)
    assert np.isnan(found[nan]).all()
    assert not np.isnan(found[~nan]).any()
    error = np.where(nan, 0.0, ulps(found, wanted))
    error[np.abs(found - wanted) <= absolute] = 0.0
    worst = int(np.argmax(error))
    assert error[worst] <= most, (FINE[worst], found[worst], wanted[worst])


@pytest.mark.parametrize(
    ("operator", "at", "wanted"),
    [
        ("Exp", [np.inf, -np.inf, 0.0, -0.0, 100.0, -120.0], [np.inf, 0, 1, 1, np.inf, 0]),
        ("Tanh", [np.inf, -np.inf, 0.0, 50.0, -50.0], [1, -1, 0, 1, -1]),
        ("Sigmoid", [np.inf, -np.inf, 0.0, 200.0], [1, 0, 0.5, 1]),
        ("Erf", [np.inf, -np.inf, 0.0, 6.0, -6.0], [1, -1, 0, 1, -1]),
    ],
)
def test_the_ends_of_vector_math_are_exact(
    operator: str, at: list[float], wanted: list[float]
) -> None:
    values = np.array(at, "float32")

    found = results_of(compiled_from(one_node_model(operator, values.shape)), [values])[0]

    np.testing.assert_array_equal(found, np.array(wanted, "float32"))


def test_the_sign_of_zero_survives_erf() -> None:
    zeros = np.array([0.0, -0.0] * 8, "float32")

    found = results_of(compiled_from(one_node_model("Erf", zeros.shape)), [zeros])[0]

    np.testing.assert_array_equal(np.signbit(found), np.signbit(zeros))
