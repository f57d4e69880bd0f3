"""What integers stand for is taken from the nodes next to the border, and only where it is sure."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.base.tensors import Quantization, TensorSpec
from edgekit.models.onnx.quantised_ends import inputs_with_steps, outputs_with_steps

STORED = {
    "s": np.float32(0.5),
    "z": np.int8(3),
    "other_s": np.float32(0.25),
    "scales": np.array([0.5, 0.25], np.float32),
    "zeros": np.array([1, 2], np.int8),
    "w": np.ones((2, 2, 1, 1), np.int8),
}
ONE_STEP = Quantization((0.5,), (3,))
X, Y = TensorSpec("x", "int8", (1, 2, 4, 4)), TensorSpec("y", "int8", (1, 2, 4, 4))


def graph(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    stored = [numpy_helper.from_array(np.asarray(v), name) for name, v in STORED.items()]
    return helper.make_graph(list(nodes), "g", [], [], stored)


def node(operator: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def of_input(*nodes: onnx.NodeProto, spec: TensorSpec = X) -> Quantization | None:
    (found,) = inputs_with_steps(graph(*nodes), [spec])
    return found.quantization


def of_output(*nodes: onnx.NodeProto, spec: TensorSpec = Y) -> Quantization | None:
    (found,) = outputs_with_steps(graph(*nodes), [spec])
    return found.quantization


def test_a_scale_for_each_channel_lies_along_the_axis_that_onnx_takes_by_default() -> None:
    per_channel = Quantization((0.5, 0.25), (1, 2), 1)
    assert of_output(node("QuantizeLinear", "r scales zeros", "y")) == per_channel
    assert of_input(node("DequantizeLinear", "x scales zeros", "r")) == per_channel
    at_the_end = node("QuantizeLinear", "r scales zeros", "y", axis=3)
    assert of_output(at_the_end) == Quantization((0.5, 0.25), (1, 2), 3)


def test_a_scale_for_each_channel_is_lost_when_the_axes_move() -> None:
    move = node("Transpose", "q", "y", perm=[0, 2, 3, 1])
    assert of_output(node("QuantizeLinear", "r scales zeros", "q"), move) is None
    assert of_output(node("QuantizeLinear", "r s z", "q"), move) == ONE_STEP


def test_a_zero_point_that_is_not_given_is_zero() -> None:
    assert of_output(node("QuantizeLinear", "r s", "y")) == Quantization((0.5,), (0,))


def test_a_scale_or_zero_point_that_is_computed_tells_nothing() -> None:
    assert of_output(node("QuantizeLinear", "r computed z", "y")) is None
    assert of_output(node("QuantizeLinear", "r s computed", "y")) is None


def test_zero_points_that_do_not_belong_to_the_scales_tell_nothing() -> None:
    assert of_output(node("QuantizeLinear", "r scales z", "y")) is None


def test_a_constant_node_tells_a_scale_as_well_as_a_stored_tensor() -> None:
    value = numpy_helper.from_array(np.asarray(np.float32(0.125)))
    scale = helper.make_node("Constant", [], ["c"], value=value)
    made = node("QuantizeLinear", "r c z", "y")
    assert of_output(scale, made) == Quantization((0.125,), (3,))


@pytest.mark.parametrize(
    "reader",
    [
        node("DequantizeLinear", "x other_s z", "b"),
        node("Cast", "x", "b", to=onnx.TensorProto.FLOAT),
    ],
    ids=["another scale", "no scale"],
)
def test_an_input_whose_readers_disagree_stands_for_itself(reader: onnx.NodeProto) -> None:
    first = node("DequantizeLinear", "x s z", "a")
    assert of_input(first) == ONE_STEP
    assert of_input(first, reader) is None


def test_an_input_that_is_not_the_data_of_its_reader_stands_for_itself() -> None:
    assert of_input(node("QLinearConv", "a s z x other_s z s z", "y")) is None


def test_a_quantised_convolution_tells_both_of_its_ends() -> None:
    convolution = node("QLinearConv", "x s z w scales zeros other_s z", "y")
    assert of_input(convolution) == ONE_STEP
    assert of_output(convolution) == Quantization((0.25,), (3,))


def test_a_real_number_has_no_steps() -> None:
    real = TensorSpec("y", "float32", (1, 2, 4, 4))
    assert of_output(node("QuantizeLinear", "r s z", "y"), spec=real) is None
