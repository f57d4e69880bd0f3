"""Sums and differences of floats round and overflow as IEEE 754 has it, also in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs.c_library import run_tree
from onnx import TensorProto, helper, numpy_helper
from support.c_builds import built_tree
from support.tflite_models import run_as_deployed

from edgekit.models.model import open_model

Compute = Callable[[np.ndarray, np.ndarray], np.ndarray]
BIG = 12582912.0
"""Adding and subtracting it rounds small floats of 32 bits to whole numbers."""
CHAINS: dict[str, tuple[list[tuple[str, str, str]], Compute]] = {
    "(x + a) - a": ([("Add", "x", "a"), ("Sub", "m0", "a")], lambda x, a: (x + a) - a),
    "(x + a) - x": ([("Add", "x", "a"), ("Sub", "m0", "x")], lambda x, a: (x + a) - x),
    "x - (x + a)": ([("Add", "x", "a"), ("Sub", "x", "m0")], lambda x, a: x - (x + a)),
    "a - (x + a)": ([("Add", "x", "a"), ("Sub", "a", "m0")], lambda x, a: a - (x + a)),
    "(x - a) + a": ([("Sub", "x", "a"), ("Add", "m0", "a")], lambda x, a: (x - a) + a),
    "(x * a) / a": ([("Mul", "x", "a"), ("Div", "m0", "a")], lambda x, a: (x * a) / a),
    "x - x": ([("Sub", "x", "x")], lambda x, a: x - x),
}


def together(folder: Path, dtype: str, number: float, size: int) -> Path:
    """Return a model with an output for each chain."""
    nodes = []
    for place, (chain, _) in enumerate(CHAINS.values()):
        for step, (operator, *given) in enumerate(chain):
            names = [f"c{place}_m0" if name == "m0" else name for name in given]
            last = step == len(chain) - 1
            made = f"y{place}" if last else f"c{place}_m{step}"
            nodes.append(helper.make_node(operator, names, [made]))
    kind = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}[dtype]
    graph = helper.make_graph(
        nodes,
        "chains",
        [helper.make_tensor_value_info("x", kind, [size])],
        [helper.make_tensor_value_info(f"y{n}", kind, [size]) for n in range(len(CHAINS))],
        [numpy_helper.from_array(np.array(number, dtype), "a")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "chains.onnx")
    return folder / "chains.onnx"


def check(found: dict[str, np.ndarray], x: np.ndarray, number: float) -> None:
    with np.errstate(all="ignore"):
        for place, (label, (_, compute)) in enumerate(CHAINS.items()):
            wanted = compute(x, np.array(number, x.dtype))
            np.testing.assert_array_equal(found[f"y{place}"], wanted, err_msg=label)


@pytest.mark.parametrize(
    ("dtype", "number", "values"),
    [
        ("float32", BIG, [1.2345, -7.5, 2.5, 0.49, 3e7, np.inf, np.nan]),
        ("float32", 3e38, [3e38, 1.0, -3e38]),
        ("float16", 60000.0, [60000.0, 1.0, -7.3, 5000.0, 5600.0, np.inf]),
    ],
)
def test_chains_in_a_library(
    dtype: str, number: float, values: list[float], tmp_path: Path
) -> None:
    x = np.array(values, dtype)
    model = together(tmp_path, dtype, number, x.size)
    check(run_as_deployed(open_model(model), {"x": x}), x, number)


def test_chains_in_c(tmp_path: Path) -> None:
    x = np.array([1.2345, -7.5, 2.5, 0.49, 3e7, np.inf, np.nan], "float32")
    built = built_tree(together(tmp_path, "float32", BIG, x.size), tmp_path / "c")
    check(run_tree(built.compiled.plan, built.folder, {"x": x}), x, BIG)


HALF = np.float16
OVERFLOWS: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], list[float], Compute]] = {
    "a product, then a small factor": (
        [helper.make_node("Mul", ["x", "a"], ["m"]), helper.make_node("Mul", ["m", "b"], ["y"])],
        {"a": HALF(200), "b": HALF(0.001)},
        [1000, 1, -1000, 300],
        lambda x, _: (x * HALF(200)) * HALF(0.001),
    ),
    "a square, then its root": (
        [helper.make_node("Mul", ["x", "x"], ["m"]), helper.make_node("Sqrt", ["m"], ["y"])],
        {},
        [300, 1, -300, 200],
        lambda x, _: np.sqrt(x * x),
    ),
    "exponentials divided": (
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("Add", ["e", "o"], ["s"]),
            helper.make_node("Div", ["e", "s"], ["y"]),
        ],
        {"o": HALF(1)},
        [12, 1, -3, 11],
        lambda x, _: np.exp(x) / (np.exp(x) + HALF(1)),
    ),
    "a sum, then a small factor": (
        [
            helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1),
            helper.make_node("Mul", ["s", "b"], ["y"]),
        ],
        {"b": HALF(0.01)},
        [60000, 60000, 1, 1],
        lambda x, _: HALF(x.astype("f4").sum(keepdims=True)) * HALF(0.01),
    ),
}


@pytest.mark.parametrize("label", OVERFLOWS)
def test_what_overflows_in_float16_is_infinite(label: str, tmp_path: Path) -> None:
    nodes, weights, values, compute = OVERFLOWS[label]
    x = np.array(values, HALF)
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, list(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "half.onnx")
    found = run_as_deployed(open_model(tmp_path / "half.onnx"), {"x": x})["y"]
    with np.errstate(all="ignore"):
        wanted = compute(x, x)
    assert not np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
