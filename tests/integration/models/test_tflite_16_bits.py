"""Models of int16 activations and int8 weights are as near to LiteRT as its tables of 16 bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.c_builds import SANITIZED, built_tree, make
from support.tflite_models import Op, T, constant, run_both, tflite_bytes, write_model

from edgekit.base.errors import UnsupportedModelError
from edgekit.models.comparison import IN_16_BITS
from edgekit.models.model import import_model

X = T("x", (1, 6, 8, 4), "int16", scale=0.00015)
OTHER = T("y", (1, 1, 8, 4), "int16", scale=0.0002)
RESULT = T("r", (), "int16", scale=0.0003)
SAME = replace(RESULT, scale=X.scale)
UNIT = replace(RESULT, scale=2**-15)


def whole(random: np.random.Generator, *shape: int, dtype: str = "int8") -> np.ndarray:
    limit = 127 if dtype == "int8" else 3000
    return random.integers(-limit, limit, shape).astype(dtype)


def check(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, wanted in expected.items():
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape)
        off = np.abs(found[name].astype(int) - wanted.astype(int))
        assert off.max() <= IN_16_BITS.allowed, name
        assert np.unique(wanted).size > 1


@pytest.mark.parametrize(
    ("operator", "result", "options"),
    [
        ("LOGISTIC", UNIT, {}),
        ("TANH", UNIT, {}),
        ("SOFTMAX", UNIT, {"table": "SoftmaxOptions", "beta": 1.0}),
        ("LEAKY_RELU", RESULT, {"table": "LeakyReluOptions", "alpha": 0.3}),
        ("RELU6", RESULT, {}),
        ("QUANTIZE", replace(RESULT, dtype="int8", scale=0.04, zero=3), {}),
    ],
)
def test_an_operator_of_one_tensor(
    operator: str, result: T, options: dict[str, Any], tmp_path: Path
) -> None:
    content = tflite_bytes([X, result], [Op(operator, ("x",), ("r",), options)], ["x"], ["r"])
    values = np.random.default_rng(1).integers(-32768, 32768, X.shape).astype("int16")
    check(*run_both(write_model(tmp_path, content), {"x": values}))


@pytest.mark.parametrize("operator", ["ADD", "SUB", "MUL"])
def test_an_operator_of_two_tensors(operator: str, tmp_path: Path) -> None:
    options = {"table": f"{operator.title()}Options"}
    content = tflite_bytes(
        [X, OTHER, RESULT], [Op(operator, ("x", "y"), ("r",), options)], ["x", "y"], ["r"]
    )
    random = np.random.default_rng(2)
    feeds = {t.name: random.integers(-32768, 32768, t.shape).astype("int16") for t in (X, OTHER)}
    check(*run_both(write_model(tmp_path, content), feeds))


def network(random: np.random.Generator) -> tuple[bytes, tuple[int, ...]]:
    """A convolution, one by channels and a dense layer, of random sizes."""
    height, width, channels = (int(n) for n in random.integers((5, 5, 1), (12, 12, 6)))
    depth, classes = (int(n) for n in random.integers((3, 2), (9, 7)))
    flat = ((height + 1) // 2) * ((width + 1) // 2) * depth
    first, second = (tuple(map(float, random.uniform(0.005, 0.03, depth))) for _ in range(2))

    def bias(name: str, scales: tuple[float, ...], step: float) -> T:
        stored = whole(random, len(scales), dtype="int64")
        return constant(name, stored, scale=tuple(scale * step for scale in scales))

    tensors = [
        T("x", (1, height, width, channels), "int16", scale=3e-4),
        constant("w1", whole(random, depth, 3, 3, channels), scale=first),
        bias("b1", first, 3e-4),
        T("y", (), "int16", scale=2e-3),
        constant("w2", whole(random, 1, 3, 3, depth), scale=second, axis=3),
        bias("b2", second, 2e-3),
        T("z", (), "int16", scale=4e-3),
        constant("shape", np.array([1, flat], "int32")),
        T("f", (), "int16", scale=4e-3),
        constant("w3", whole(random, classes, flat), scale=0.006),
        constant("b3", whole(random, classes, dtype="int64"), scale=0.006 * 4e-3),
        T("o", (), "int16", scale=0.02),
    ]
    strided = {"strideH": 2, "strideW": 2, "fusedActivationFunction": 1}
    plain = {"strideH": 1, "strideW": 1, "depthMultiplier": 1}
    operators = [
        Op("CONV_2D", ("x", "w1", "b1"), ("y",), {"table": "Conv2DOptions", **strided}),
        Op(
            "DEPTHWISE_CONV_2D",
            ("y", "w2", "b2"),
            ("z",),
            {"table": "DepthwiseConv2DOptions", **plain},
        ),
        Op("RESHAPE", ("z", "shape"), ("f",), {"table": "ReshapeOptions"}),
        Op("FULLY_CONNECTED", ("f", "w3", "b3"), ("o",), {"table": "FullyConnectedOptions"}),
    ]
    return tflite_bytes(tensors, operators, ["x"], ["z", "o"]), tensors[0].shape


@pytest.mark.parametrize("seed", range(3))
def test_networks_of_random_sizes(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    content, shape = network(random)
    values = random.integers(-32768, 32768, shape).astype("int16")
    check(*run_both(write_model(tmp_path, content), {"x": values}))


def test_a_network_in_c(tmp_path: Path) -> None:
    content, _ = network(np.random.default_rng(4))
    built = built_tree(write_model(tmp_path, content).path, tmp_path / "c")
    tested = make(built.folder, "test", f"CFLAGS={' '.join(SANITIZED)}")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count(": ok\n") == 2


def test_what_litert_takes_from_coarse_tables_is_refused(tmp_path: Path) -> None:
    content = tflite_bytes([X, RESULT], [Op("EXP", ("x",), ("r",))], ["x"], ["r"])
    with pytest.raises(UnsupportedModelError, match=r"EXP.*coarse tables"):
        import_model(write_model(tmp_path, content))
