"""bfloat16 values move and compute in a deployment as in the oracle."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support.tflite_models import run_both

from edgekit.models.model import open_model


def test_bfloat16_is_repeated_along_the_last_axis(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Expand", ["b", "shape"], ["y"])],
        "net",
        [helper.make_tensor_value_info("b", TensorProto.BFLOAT16, [3, 1])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)],
        [numpy_helper.from_array(np.array([2, 3, 4]), "shape")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "net.onnx")
    values = np.random.default_rng(0).standard_normal((3, 1)).astype(ml_dtypes.bfloat16)
    found, expected = run_both(open_model(tmp_path / "net.onnx"), {"b": values})
    assert found["y"].dtype == expected["y"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found["y"].astype("float32"), expected["y"].astype("float32"))
    np.testing.assert_array_equal(found["y"][1, :, 3], values[:, 0])
