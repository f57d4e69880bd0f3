"""Lines that vectors do not divide, sums of everything, and few results, judged by onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.compiling import (
    check_against_onnxruntime,
    compiled_from,
    one_node_model,
    random_array,
    results_of,
)
from support.examples import one_of
from support.onnx_models import judged_by_onnxruntime, onnx_model

from edgekit.backends.offloading import compile_model
from edgekit.models.model import import_model, open_model
from edgekit.profiles.cpu import this_cpu

ODD = one_of((3, 37, 5, 13), (1, 6, 56, 56), (2, 197), (5, 7, 7), (1, 3, 36), (67, 41))


@pytest.mark.parametrize("shape", ODD, ids=str)
@pytest.mark.parametrize("operator", ["Softmax", "Sin", "HardSwish", "ReduceMean", "ReduceL2"])
def test_lines_that_vectors_do_not_divide(operator: str, shape: tuple[int, ...]) -> None:
    axes = {"axes": [-1]} if operator.startswith("Reduce") else {}
    data = random_array(shape)

    check_against_onnxruntime(one_node_model(operator, shape, **axes), {"x": data})


def check_imported(model: onnx.ModelProto, data: np.ndarray, folder: Path) -> None:
    """Compare a model that edgekit's importer read, and demand a rule."""
    onnx.save(model, folder / "model.onnx")
    compiled = compile_model(import_model(open_model(folder / "model.onnx")), this_cpu()[1])
    (found,), (wanted,) = results_of(compiled, [data]), judged_by_onnxruntime(model, {"x": data})

    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-4)
    assert {rule for _, rule in compiled.rules} == {"generic"}


@pytest.mark.parametrize("shape", [(1, 16000), (3, 37, 5, 13), (1, 6, 56, 56)], ids=str)
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceMean"])
def test_one_number_of_everything(operator: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    check_imported(one_node_model(operator, shape), random_array(shape), tmp_path)


@pytest.mark.parametrize(("operator", "end"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
@pytest.mark.parametrize("axes", [{}, {"axes": [1]}], ids=str)
def test_the_largest_of_nothing_but_infinities_is_infinite(
    operator: str, end: float, axes: dict[str, list[int]], tmp_path: Path
) -> None:
    data = np.full((3, 50), end, "float32")

    check_imported(one_node_model(operator, data.shape, **axes), data, tmp_path)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 7])
@pytest.mark.parametrize(("inputs", "kernel", "stride"), [(67, 3, 1), (64, 1, 1), (40, 3, 2)])
def test_convolutions_with_few_results(
    channels: int, inputs: int, kernel: int, stride: int
) -> None:
    shape = (2, inputs, 9, 11)
    weights = {
        "w": random_array((channels, inputs, kernel, kernel), 1) / np.float32(kernel * inputs**0.5),
        "b": random_array((channels,), 2),
    }
    pads, strides = [kernel // 2] * 4, [stride] * 2
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads, strides=strides),
        helper.make_node("Relu", ["c"], ["y"]),
    ]

    check_against_onnxruntime(
        onnx_model(nodes, {"x": shape}, ["y"], weights), {"x": random_array(shape)}
    )


@pytest.mark.parametrize("columns", [1, 3, 4, 7])
def test_products_with_few_columns(columns: int) -> None:
    weights = {"w": random_array((101, columns), 1), "b": random_array((columns,), 2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": (2, 17, 101)}, ["y"], weights)

    check_against_onnxruntime(model, {"x": random_array((2, 17, 101))})


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize(
    ("shape", "scales"), [((1, 13, 7, 9), (3.0, 2.0)), ((2, 8, 1, 6), (2.0, 0.5))]
)
def test_linear_resizes_of_odd_images(
    coordinates: str, shape: tuple[int, ...], scales: tuple[float, float]
) -> None:
    data = random_array(shape)
    data[0, 3, 0, 2], data[0, 5, 0, 3] = np.nan, np.inf
    constants = [None, np.array([1, 1, *scales], "float32")]
    attributes = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    model = one_node_model("Resize", shape, constants, **attributes)

    check_against_onnxruntime(model, {"x": data})


def test_a_pool_alone_computes_in_vectors_of_channels() -> None:
    shape = (1, 24, 9, 11)
    model = one_node_model("AveragePool", shape, kernel_shape=[3, 3], pads=[1] * 4)

    assert any("transpose" in name for name, _ in compiled_from(model).rules)
