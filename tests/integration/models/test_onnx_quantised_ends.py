"""Integers at an ONNX model's border are known for what they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.base.events import SILENT
from edgekit.base.tensors import Quantization
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import Model, import_model, open_model
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.verify import verify

SCALE, ZERO = 0.5, 3


def quantised_model(path: Path, *tail: onnx.NodeProto, output: str = "y") -> Path:
    """x (uint8) - dequantise - convolve - quantise - y, and whatever comes after."""
    rng = np.random.default_rng(0)
    values = {
        "in_scale": np.float32(0.1),
        "in_zero": np.uint8(128),
        "weight": rng.standard_normal((4, 3, 3, 3)).astype("float32"),
        "out_scale": np.float32(SCALE),
        "out_zero": np.int8(ZERO),
        "flat": np.array([1, -1]),
    }
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "in_scale", "in_zero"], ["real"]),
            helper.make_node("Conv", ["real", "weight"], ["filtered"], pads=[1, 1, 1, 1]),
            helper.make_node("QuantizeLinear", ["filtered", "out_scale", "out_zero"], ["y"]),
            *tail,
        ],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(output, TensorProto.INT8, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def imported(path: Path) -> Model:
    return import_model(open_model(path), SILENT)


def test_input_and_output_carry_their_scale_and_zero_point(tmp_path: Path) -> None:
    model = imported(quantised_model(tmp_path / "m.onnx"))
    assert model.inputs[0].quantization == Quantization((pytest.approx(0.1, rel=1e-6),), (128,))
    assert model.outputs[0].quantization == Quantization((SCALE,), (ZERO,))


def test_moving_the_integers_about_keeps_what_they_stand_for(tmp_path: Path) -> None:
    tail = helper.make_node("Reshape", ["y", "flat"], ["z"])
    model = imported(quantised_model(tmp_path / "m.onnx", tail, output="z"))
    assert model.outputs[0].quantization == Quantization((SCALE,), (ZERO,))


def test_an_integer_that_was_computed_with_stands_for_itself(tmp_path: Path) -> None:
    tail = helper.make_node("Add", ["y", "y"], ["z"])
    model = imported(quantised_model(tmp_path / "m.onnx", tail, output="z"))
    assert model.outputs[0].quantization is None


def test_a_quantised_onnx_model_is_verified_in_steps(tmp_path: Path) -> None:
    board = load_board("local")
    request = BuildRequest(
        open_model(quantised_model(tmp_path / "m.onnx")), board, load_toolchain(board.toolchain)
    )
    bundle = build(request, tmp_path / "b", use_cache=False, isolated=False).bundle
    (output,) = verify(bundle, LocalDevice()).outputs
    assert output.unit == "steps"
    assert output.max_error <= 1
