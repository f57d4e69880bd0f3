"""NaN comes through ReLU and clipping, as it does in onnxruntime, and they still fuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.deployed import run_deployed
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.backends.offloading import compile_model
from edgekit.models.model import import_model, open_model
from edgekit.profiles.cpu import this_cpu

LOW, HIGH = np.array(0, np.float32), np.array(6, np.float32)
ODD = np.arange(-8, 8, dtype=np.float32).reshape(1, 1, 2, 8)
ODD[0, 0, 0, 1] = ODD[0, 0, 1, 3] = np.nan


def computed(model: onnx.ModelProto, folder: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    onnx.save(model, folder / "model.onnx")
    compiled = compile_model(import_model(open_model(folder / "model.onnx")), this_cpu()[1])
    (found,) = run_deployed(compiled, [ODD])
    return found, compiled.kernels


@pytest.mark.parametrize(
    ("operator", "bounds"),
    [
        ("Relu", []),
        ("Clip", ["low", "high"]),
        ("Clip", ["low"]),
        ("Clip", ["", "high"]),
        ("Max", ["low"]),
        ("Min", ["high"]),
    ],
)
@pytest.mark.parametrize("after_a_convolution", [False, True])
def test_nan_is_what_onnxruntime_makes_of_it(
    tmp_path: Path, operator: str, bounds: list[str], after_a_convolution: bool
) -> None:
    nodes = [helper.make_node(operator, ["c" if after_a_convolution else "x", *bounds], ["y"])]
    weights = {"low": LOW, "high": HIGH}
    weights = {name: value for name, value in weights.items() if name in bounds}
    if after_a_convolution:
        nodes.insert(0, helper.make_node("Conv", ["x", "w"], ["c"]))
        weights["w"] = np.full((1, 1, 1, 1), 0.5, np.float32)
    model = onnx_model(nodes, {"x": ODD.shape}, ["y"], weights)

    found, kernels = computed(model, tmp_path)

    np.testing.assert_array_equal(found, judged_by_onnxruntime(model, {"x": ODD})[0])
    assert np.isnan(found).sum() == 2
    computing = [kernel for kernel in kernels if "transpose" not in kernel]
    assert len(computing) == 1, "it is part of the convolution's loop nest"


@pytest.mark.parametrize("bounds", ["", "low", ", low"])
def test_infinity_is_clipped_where_a_bound_is_missing(tmp_path: Path, bounds: str) -> None:
    """The standard's bound is then the type's largest number."""
    given = f", {bounds}" if bounds else ""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    clips (float[1, 1, 2, 8] x) => (float[1, 1, 2, 8] y) <float low = {{1}}>
    {{ y = Clip (x{given}) }}
    """
    model = onnx.parser.parse_model(text)
    onnx.save(model, tmp_path / "model.onnx")
    compiled = compile_model(import_model(open_model(tmp_path / "model.onnx")), this_cpu()[1])
    x = ODD.copy()
    x[..., :2] = np.inf, -np.inf

    (found,) = run_deployed(compiled, [x])

    np.testing.assert_array_equal(found, judged_by_onnxruntime(model, {"x": x})[0])


STORED = """
<ir_version: 8, opset_import: ["" : 17]>
stored (double[1, 2, 1, 42] x) => (double[1, 2, 47, 42] y)
<int64[8] below = {0, 0, 0, 0, 0, -1, 46, 0}, int64[8] none = {0, 0, 0, 0, 0, 0, 0, 0},
 double half = {0.5}>
{
    longer = Pad (x, below, half)
    same = Pad <mode = "reflect"> (longer, none)
    less = Less (longer, same)
    y = Where (less, longer, x)
}
"""


def test_a_condition_in_a_buffer_of_vectors_is_stored(tmp_path: Path) -> None:
    """TVM stores booleans as bytes, within a kernel as vectors of them."""
    model = onnx.parser.parse_model(STORED)
    onnx.save(model, tmp_path / "model.onnx")
    compiled = compile_model(import_model(open_model(tmp_path / "model.onnx")), this_cpu()[1])
    x = np.random.default_rng(3).uniform(-1, 1, (1, 2, 1, 42))

    (found,) = run_deployed(compiled, [x])

    np.testing.assert_array_equal(found, judged_by_onnxruntime(model, {"x": x})[0])


@pytest.mark.parametrize("operators", [["Max"], ["Max", "Min", "Where", "Relu", "Clip"]])
def test_a_long_chain_in_one_kernel_compiles(tmp_path: Path, operators: list[str]) -> None:
    """Each step reads the two before it: a compiler that writes them out doubles its work."""
    nodes, before, last = [], "x", "x"
    for step in range(30):
        operator = operators[step % len(operators)]
        name, inputs = f"y{step}", {"Relu": [last], "Clip": [last, "low", "high"]}
        if operator == "Where":
            nodes.append(helper.make_node("Less", [last, before], [f"{name}_less"]))
            inputs["Where"] = [f"{name}_less", before, last]
        nodes += [
            helper.make_node(operator, inputs.get(operator, [last, before]), [f"{name}_o"]),
            helper.make_node("Sub", [f"{name}_o", before], [name]),
        ]
        before, last = last, name
    model = onnx_model(nodes, {"x": ODD.shape}, [last], {"low": LOW, "high": HIGH})

    found, kernels = computed(model, tmp_path)

    np.testing.assert_allclose(found, judged_by_onnxruntime(model, {"x": ODD})[0], rtol=1e-6)
    assert len(kernels) == 1
