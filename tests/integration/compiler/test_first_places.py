"""Argmax and argmin of rows whose values are all the lowest, or the highest, of their type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.compiling import results_of
from support.onnx_models import judged_by_onnxruntime

from edgekit.backends.offloading import compile_model
from edgekit.models.model import import_model, open_model
from edgekit.profiles.cpu import this_cpu


def lowest_and_highest(dtype: str) -> tuple[float, float]:
    if dtype.startswith("float"):
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "uint8"])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_the_first_of_equal_extremes_is_found(operator: str, dtype: str, tmp_path: Path) -> None:
    """They were at -1: a model that reads there reads before its tensor."""
    low, high = lowest_and_highest(dtype)
    x = np.array([[low] * 3, [high] * 3, [low, high, low], [high, low, high]], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], axis=1, keepdims=0)],
        "places",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    imported = import_model(open_model(tmp_path / "model.onnx"))

    (found,) = results_of(compile_model(imported, this_cpu()[1]), [x])

    (expected,) = judged_by_onnxruntime(model, {"x": x})
    np.testing.assert_array_equal(found, expected)
