"""Quantised ONNX layers are computed in integers, and mean what onnxruntime says they mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support.compiling import compiled_from, results_of
from support.examples import examples
from support.onnx_models import judged_by_onnxruntime, onnx_model

STEP = 0.012


@dataclass(frozen=True)
class Layer:
    operator: str = "Conv"
    """Conv, Gemm or MatMul."""
    channels: int = 8
    outputs: int = 12
    depthwise: bool = False
    size: tuple[int, int] = (9, 7)
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    stored: str = "int8"
    zero: int = 5
    per_channel: bool = True
    relu: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        if self.operator == "Conv":
            return (1, self.channels, *self.size)
        return (3, self.channels)


def network(layer: Layer) -> onnx.ModelProto:
    random = np.random.default_rng(2)
    outputs = layer.channels if layer.depthwise else layer.outputs
    groups = layer.channels if layer.depthwise else 1
    shape, axis = {
        "Conv": ((outputs, layer.channels // groups, *layer.kernel), 0),
        "Gemm": ((outputs, layer.channels), 0),
        "MatMul": ((layer.channels, outputs), 1),
    }[layer.operator]
    scales = random.uniform(0.002, 0.02, outputs if layer.per_channel else ()).astype("float32")
    depth = int(np.prod(shape)) // outputs
    values = {
        "scale": np.float32(0.03),
        "zero": np.array(layer.zero, layer.stored),
        "w_stored": random.integers(-127, 128, shape).astype("int8"),
        "w_scale": scales,
        "w_zero": np.zeros(scales.shape, "int8"),
        "bias": random.standard_normal(outputs).astype("float32"),
        "y_scale": np.float32(STEP * depth**0.5),
        "y_zero": np.array(layer.zero, layer.stored),
    }
    options: dict[str, object] = {}
    if layer.operator == "Conv":
        options = {"strides": layer.strides, "pads": layer.pads, "group": groups}
    elif layer.operator == "Gemm":
        options = {"transB": 1}
    operands = ["real", "w"] if layer.operator == "MatMul" else ["real", "w", "bias"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["stored"]),
        helper.make_node("DequantizeLinear", ["stored", "scale", "zero"], ["real"]),
        helper.make_node("DequantizeLinear", ["w_stored", "w_scale", "w_zero"], ["w"], axis=axis),
        helper.make_node(layer.operator, operands, ["c"], **options),
        helper.make_node("Relu" if layer.relu else "Identity", ["c"], ["d"]),
        helper.make_node("QuantizeLinear", ["d", "y_scale", "y_zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "y_scale", "y_zero"], ["y"]),
    ]
    if layer.operator == "MatMul":
        del values["bias"]
    return onnx_model(nodes, {"x": layer.shape}, ["y"], values)


def check(layer: Layer) -> set[str]:
    return judged(network(layer), layer)


def judged(model: onnx.ModelProto, layer: Layer) -> set[str]:
    """The rules of its kernels, if its results are onnxruntime's."""
    x = np.random.default_rng(4).uniform(-4, 4, layer.shape).astype("float32")
    compiled = compiled_from(model)
    (found,), (expected,) = results_of(compiled, [x]), judged_by_onnxruntime(model, {"x": x})
    (scale,) = (value for value in model.graph.initializer if value.name == "y_scale")
    steps = np.round(np.abs(found - expected) / onnx.numpy_helper.to_array(scale))
    # Where floats add up to a tie, one may round up what the other rounds down.
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 1 + steps.size // 1000
    return {rule for _, rule in compiled.rules}


CHANNELS = st.sampled_from([1, 2, 3, 4, 5, 8, 13, 16, 32, 33])


@settings(max_examples=examples(25), deadline=None)
@given(
    layer=st.builds(
        Layer,
        operator=st.sampled_from(["Conv", "Conv", "Gemm", "MatMul"]),
        channels=CHANNELS,
        outputs=CHANNELS,
        depthwise=st.booleans(),
        size=st.tuples(st.integers(3, 12), st.integers(3, 12)),
        kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        pads=st.tuples(*[st.integers(0, 2)] * 4),
        stored=st.sampled_from(["int8", "uint8"]),
        zero=st.integers(0, 127),
        per_channel=st.booleans(),
        relu=st.booleans(),
    )
)
def test_any_quantised_layer_means_what_onnxruntime_says(layer: Layer) -> None:
    check(layer)


@pytest.mark.parametrize("stored", ["int8", "uint8"])
@pytest.mark.parametrize("operator", ["Conv", "Gemm", "MatMul"])
def test_a_quantised_layer_runs_in_dot_products(operator: str, stored: str) -> None:
    assert "int8" in check(Layer(operator, stored=stored, channels=16))


def test_a_quantised_depthwise_convolution_runs_as_one() -> None:
    assert "depthwise" in check(Layer(depthwise=True))


def test_weights_with_a_zero_point_stay_floats() -> None:
    model = network(Layer())
    (zero,) = (value for value in model.graph.initializer if value.name == "w_zero")
    zero.CopyFrom(onnx.numpy_helper.from_array(np.full(12, 3, "int8"), "w_zero"))

    assert "int8" not in judged(model, Layer())
