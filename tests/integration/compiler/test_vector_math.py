"""Functions as polynomials: compared with double precision, in units of the last place, everywhere
and at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper
from support.compiling import compiled_from, one_node_model, results_of
from support.onnx_models import onnx_model

ODD = [
    *[0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38],
    *[88.7228, 88.73, 89.0, 89.4, -89.4, -87.33, -87.34, -103.97, -103.98, -104.0, -150.0],
    *[0.625, -0.625, 0.62499994, 4.0, -4.0, 3.9999998, 9.0, -9.0, 0.34657359, -0.34657359],
    *[1.0, -1.0, 0.5, -0.5, 0.99999994, -0.99999994, 1.0000001, 1e8, 1e9, 1e20, -1e20, 2.0, 10.0],
]
FINE = np.concatenate(
    [
        np.array(ODD),
        np.linspace(-110, 95, 4001),
        np.linspace(-1, 1, 4001),
        np.linspace(0.5, 2, 2001),
        np.geomspace(1e-40, 10, 2000),
        -np.geomspace(1e-40, 10, 2000),
        np.geomspace(10, 3e38, 2000),
    ]
).astype("float32")


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def exact(function: Callable[..., float], *operands: np.ndarray) -> np.ndarray:
    def safe(*numbers: float) -> float:
        try:
            return function(*numbers)
        except OverflowError:
            return math.inf
        except ValueError:  # a pole, or no number
            return math.nan

    return np.array([safe(*map(float, each)) for each in zip(*operands, strict=True)])


def ulps(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The error in units of the last place of the right answer in single precision."""
    with np.errstate(over="ignore"):
        rounded = wanted.astype("float32")
    spacing = np.maximum(np.spacing(np.abs(rounded)), np.float32(1e-45)).astype("float64")
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype("float64") - wanted) / spacing
    return np.where((found == rounded) | (np.isnan(found) & np.isnan(wanted)), 0.0, error)


def logarithm(of: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: -math.inf if x == 0 else of(x)


@pytest.mark.parametrize(
    ("operator", "function", "most", "absolute"),
    [
        ("Exp", math.exp, 2.0, 0.0),
        ("Tanh", math.tanh, 3.0, 0.0),
        ("Sigmoid", sigmoid, 4.0, 1e-38),
        ("Erf", math.erf, 8.0, 1e-37),
        ("Log", logarithm(math.log), 2.0, 0.0),
        ("Sin", math.sin, 2.0, 0.0),
        ("Cos", math.cos, 2.0, 0.0),
        ("Tan", math.tan, 4.0, 0.0),
        ("Asin", math.asin, 3.0, 0.0),
        ("Acos", math.acos, 3.0, 1e-7),
        ("Atan", math.atan, 3.0, 0.0),
        ("Sinh", lambda x: math.copysign(exact(math.sinh, np.array([abs(x)]))[0], x), 4.0, 0.0),
        ("Cosh", math.cosh, 4.0, 0.0),
        ("Asinh", math.asinh, 4.0, 0.0),
        ("Acosh", math.acosh, 4.0, 0.0),
        ("Atanh", lambda x: math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x), 4.0, 0.0),
    ],
)
def test_vector_math_is_right_to_a_few_units_of_the_last_place(
    operator: str, function: Callable[[float], float], most: float, absolute: float
) -> None:
    compiled = compiled_from(one_node_model(operator, FINE.shape))
    found = results_of(compiled, [FINE])[0]
    wanted = exact(function, FINE)

    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    error = np.where(np.isnan(wanted), 0.0, ulps(found, wanted))
    with np.errstate(invalid="ignore"):
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
        ("Log", [np.inf, 0.0, -0.0, 1.0, -1.0], [np.inf, -np.inf, -np.inf, 0, np.nan]),
        ("Cosh", [np.inf, -np.inf, 0.0], [np.inf, np.inf, 1]),
        ("Acos", [1.0, 1.1, np.inf], [0, np.nan, np.nan]),
    ],
)
def test_the_ends_of_vector_math_are_exact(
    operator: str, at: list[float], wanted: list[float]
) -> None:
    values = np.array(at, "float32")

    found = results_of(compiled_from(one_node_model(operator, values.shape)), [values])[0]

    np.testing.assert_array_equal(found, np.array(wanted, "float32"))


@pytest.mark.parametrize(
    "operator", ["Erf", "Tanh", "Sin", "Tan", "Asin", "Atan", "Sinh", "Asinh", "Atanh"]
)
def test_the_sign_of_zero_survives(operator: str) -> None:
    zeros = np.array([0.0, -0.0] * 8, "float32")

    found = results_of(compiled_from(one_node_model(operator, zeros.shape)), [zeros])[0]

    np.testing.assert_array_equal(np.signbit(found), np.signbit(zeros))


def test_a_power_is_right_and_as_c_has_it_for_zeros_infinities_and_negative_numbers() -> None:
    random = np.random.default_rng(0)
    ends = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e30, -1e30, 16777217.0]
    ends = np.array([*ends, np.inf, -np.inf, np.nan], "float32")
    pairs = np.array(np.meshgrid(ends, ends)).reshape(2, -1)
    drawn = np.stack([np.exp(random.uniform(-80, 80, 4000)), random.uniform(-4, 4, 4000)])
    bases, exponents = np.concatenate([pairs, drawn], axis=1).astype("float32")
    model = onnx_model(
        [helper.make_node("Pow", ["x", "e"], ["y"])],
        {"x": bases.shape, "e": bases.shape},
        ["y"],
        {},
    )

    found = results_of(compiled_from(model), [bases, exponents])[0]

    with np.errstate(all="ignore"):
        wanted = np.power(bases.astype("float64"), exponents.astype("float64"))
        error = ulps(found, wanted)
        zero = wanted.astype("float32") == 0
    worst = int(np.argmax(error))
    assert error[worst] <= 1.0, (bases[worst], exponents[worst], found[worst], wanted[worst])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(wanted[zero]))


def test_functions_inside_of_functions_compile() -> None:
    """Mish, and a chain of twenty functions in one kernel."""
    nodes, value = [], "x"
    for step, operator in enumerate(["Softplus", "Tanh", "Exp", "Sin", "Atan"] * 4):
        nodes.append(helper.make_node(operator, [value], [f"v{step}"]))
        value = f"v{step}"
    data = np.linspace(-3, 3, 301).astype("float32")

    found = results_of(compiled_from(onnx_model(nodes, {"x": data.shape}, [value], {})), [data])[0]

    wanted = data.astype("float64")
    for _ in range(4):
        wanted = np.arctan(np.sin(np.exp(np.tanh(np.log1p(np.exp(wanted))))))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
