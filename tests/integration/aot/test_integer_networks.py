"""Whole quantised networks become integer kernels that give what LiteRT and onnxruntime give."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from support.integer_kernels import WARNINGS, c_file, offered, recognised_file, run_module
from support.onnx_models import judged_by_onnxruntime, onnx_model
from support.tflite_models import Op, T, constant, tflite_bytes

from benchmarks.model_zoo import MODELS, ZooModel, fetch
from edgekit.aot import operators
from edgekit.aot.quantised.recognised import Recognised

RANDOM = np.random.default_rng(5)
MLPERF = [model for model in MODELS if model.name.startswith("MLPerf Tiny")]


def weights(name: str, shape: Sequence[int], **more: Any) -> T:
    return constant(name, RANDOM.integers(-127, 128, tuple(shape)).astype("int8"), **more)


def biases(name: str, count: int, scale: float) -> T:
    values = RANDOM.integers(-2000, 2000, count).astype("int32")
    return constant(name, values, scale=scale)


def small_network() -> bytes:
    """An image of floats through every kind of layer that MLPerf Tiny's networks have."""
    tensors = [
        T("image", (1, 12, 10, 3)),
        T("image_int8", (1, 12, 10, 3), "int8", scale=0.02, zero=3),
        weights("w1", (8, 3, 3, 3), scale=0.01),
        biases("b1", 8, 0.0002),
        T("convolved", (), "int8", scale=0.05, zero=-128),
        weights("w2", (1, 3, 3, 8), scale=[0.01 + 0.002 * k for k in range(8)], axis=3),
        constant("b2", RANDOM.integers(-900, 900, 8).astype("int32")),
        T("by_channel", (), "int8", scale=0.06, zero=-4),
        T("added", (), "int8", scale=0.08, zero=11),
        T("pooled", (), "int8", scale=0.08, zero=11),
        constant("shape", np.array([1, 8], "int32")),
        T("flat", (1, 8), "int8", scale=0.08, zero=11),
        weights("w3", (5, 8), scale=0.02),
        biases("b3", 5, 0.0016),
        T("logits", (), "int8", scale=0.09, zero=-7),
        T("likely", (), "int8", scale=1 / 256, zero=-128),
        T("answer", (1, 5)),
    ]
    window = {"padding": 0, "strideH": 1, "strideW": 1}
    pool = {"filterHeight": 6, "filterWidth": 5, "padding": 1, "strideH": 6, "strideW": 5}
    nodes = [
        Op("QUANTIZE", ("image",), ("image_int8",)),
        Op(
            "CONV_2D",
            ("image_int8", "w1", "b1"),
            ("convolved",),
            {"table": "Conv2DOptions", **window, "strideH": 2, "strideW": 2}
            | {"fusedActivationFunction": 1},
        ),
        Op(
            "DEPTHWISE_CONV_2D",
            ("convolved", "w2", "b2"),
            ("by_channel",),
            {"table": "DepthwiseConv2DOptions", **window, "depthMultiplier": 1},
        ),
        Op("ADD", ("convolved", "by_channel"), ("added",), {"table": "AddOptions"}),
        Op("AVERAGE_POOL_2D", ("added",), ("pooled",), {"table": "Pool2DOptions", **pool}),
        Op("RESHAPE", ("pooled", "shape"), ("flat",), {"table": "ReshapeOptions"}),
        Op(
            "FULLY_CONNECTED",
            ("flat", "w3", "b3"),
            ("logits",),
            {"table": "FullyConnectedOptions"},
        ),
        Op("SOFTMAX", ("logits",), ("likely",), {"table": "SoftmaxOptions", "beta": 1.0}),
        Op("DEQUANTIZE", ("likely",), ("answer",)),
    ]
    return tflite_bytes(tensors, nodes, ["image"], ["answer"])


def check_every_tensor(
    path: Path, folder: Path, seeds: int, flags: Sequence[str] = ("-O1",)
) -> Recognised:
    """Every step's result against the tensor of the same name in LiteRT's reference kernels."""
    recognised = recognised_file(path)
    assert not recognised.declined
    assert not any(isinstance(o, operators.LoopNest) for o in recognised.operators.values())
    interpreter = Interpreter(
        str(path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    places = {detail["name"][:200]: detail["index"] for detail in interpreter.get_tensor_details()}
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        if given["dtype"] == np.int8:
            image = random.integers(-128, 128, given["shape"]).astype("int8")
        else:
            image = random.normal(0, 1 + 20 * (seed % 3), given["shape"]).astype("float32")
        interpreter.set_tensor(given["index"], image)
        interpreter.invoke()
        _, steps = run_module(recognised, [image], folder, flags=flags)
        softened = False
        for number, found in steps.items():
            softened |= isinstance(recognised.operators[number], operators.Softmax)
            name = recognised.layers[number][0]
            expected = interpreter.get_tensor(places[name]).reshape(found.shape)
            steps_apart = np.abs(found.astype("float64") - expected.astype("float64"))
            limit = (1 if found.dtype == np.int8 else 1 / 256) if softened else 0
            assert steps_apart.max() <= limit, f"{name}: {steps_apart.max()} from LiteRT"
    return recognised


def test_a_small_network_is_litert_s_to_the_last_step(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    recognised = check_every_tensor(path, tmp_path, 4)
    kinds = [type(operator).__name__ for operator in recognised.operators.values()]
    assert kinds == [
        "Quantize",
        "Conv2D",
        "DepthwiseConv2D",
        "Add",
        "AveragePool",
        "FullyConnected",
        "Softmax",
        "Dequantize",
    ]


def test_cpus_that_multiply_to_32_bits_only_get_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    check_every_tensor(path, tmp_path, 2, ("-O1", "-D__ARM_ARCH_6M__"))


def test_portable_kernels_are_c_plus_plus_too_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    recognised = recognised_file(path)
    kernels = [
        offered(operator, place) for place, operator in enumerate(recognised.operators.values())
    ]
    source = tmp_path / "all.cc"
    source.write_text(c_file(kernels))
    for standard in ("gnu++11", "c++17"):
        command = ["g++", f"-std={standard}", *WARNINGS, "-O2", "-c", "-o", tmp_path / "all.o"]
        subprocess.run([*command, source], check=True)


@pytest.mark.models
@pytest.mark.parametrize("model", MLPERF, ids=lambda model: model.name.split()[-1])
def test_mlperf_tiny_is_litert_s_to_the_last_step(model: ZooModel, tmp_path: Path) -> None:
    check_every_tensor(fetch(model), tmp_path, 3)


class Images(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        self._left = 8
        self._shape = shape

    def get_next(self) -> dict[str, np.ndarray] | None:
        self._left -= 1
        return {"image": random_image(self._left, self._shape)} if self._left >= 0 else None


def random_image(seed: int, shape: tuple[int, ...] = (1, 3, 16, 16)) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype("float32")


def kernel(*shape: int) -> np.ndarray:
    fan = max(1, int(np.prod(shape[1:])))
    return np.random.default_rng(sum(shape)).normal(0, (2 / fan) ** 0.5, shape).astype("float32")


def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [output], name=output, **attributes)


def every_layer() -> onnx.ModelProto:
    """Channels first, with all that integer kernels know."""
    sides = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["image", "w1", "b1"], "first", strides=[2, 2], **sides),
        node("Relu", ["first"], "rectified"),
        node("Conv", ["rectified", "w2", "b2"], "by_channel", group=8, **sides),
        node("HardSwish", ["by_channel"], "swished"),
        node("Conv", ["swished", "w3", "b3"], "pointwise"),
        node("Add", ["pointwise", "rectified"], "added"),
        node("MaxPool", ["added"], "largest", kernel_shape=[2, 2], strides=[2, 2]),
        node("Sigmoid", ["largest"], "gate"),
        node("Mul", ["largest", "gate"], "gated"),
        node("Concat", ["gated", "largest"], "joined", axis=1),
        node("LeakyRelu", ["joined"], "leaky", alpha=0.2),
        node(
            "Resize",
            ["leaky", "", "twice"],
            "larger",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        node("GlobalAveragePool", ["larger"], "mean"),
        node("Flatten", ["mean"], "flat"),
        node("Gemm", ["flat", "w4", "b4"], "logits", transB=1),
        node("Softmax", ["logits"], "answer"),
    ]
    values = {
        "w1": kernel(8, 3, 3, 3),
        "b1": kernel(8) / 10,
        "w2": kernel(8, 1, 3, 3),
        "b2": kernel(8) / 10,
        "w3": kernel(8, 8, 1, 1),
        "b3": kernel(8) / 10,
        "w4": kernel(6, 16),
        "b4": kernel(6) / 10,
        "twice": np.array([1, 1, 2, 2], "float32"),
    }
    return onnx_model(nodes, {"image": (1, 3, 16, 16)}, ["answer"], values)


def sequence_network() -> onnx.ModelProto:
    """Convolutions and pooling along one axis, as of a sensor's signal."""
    nodes = [
        node("Conv", ["image", "w1", "b1"], "first", strides=[2], pads=[2, 1]),
        node("Relu", ["first"], "rectified"),
        node("Conv", ["rectified", "w2"], "by_channel", group=6, pads=[1, 1]),
        node("MaxPool", ["by_channel"], "largest", kernel_shape=[2], strides=[2]),
        node("ReduceMean", ["largest"], "mean", axes=[2], keepdims=0),
        node("Gemm", ["mean", "w3", "b3"], "answer", transB=1),
    ]
    values = {
        "w1": kernel(6, 4, 5),
        "b1": kernel(6) / 10,
        "w2": kernel(6, 1, 3),
        "w3": kernel(3, 6),
        "b3": kernel(3) / 10,
    }
    return onnx_model(nodes, {"image": (1, 4, 40)}, ["answer"], values)


def quantised(
    folder: Path,
    activations: QuantType,
    kernels: QuantType,
    *,
    per_channel: bool = True,
    model: onnx.ModelProto | None = None,
) -> Path:
    plain, path = folder / "plain.onnx", folder / "quantised.onnx"
    model = every_layer() if model is None else model
    (image,) = model.graph.input
    shape = tuple(axis.dim_value for axis in image.type.tensor_type.shape.dim)
    onnx.save(model, plain)
    quantize_static(
        str(plain),
        str(path),
        Images(shape),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=activations,
        weight_type=kernels,
    )
    return path


@pytest.mark.parametrize("activations", [QuantType.QInt8, QuantType.QUInt8], ids=str)
def test_qdq_networks_are_within_three_steps_of_onnxruntime(
    activations: QuantType, tmp_path: Path
) -> None:
    """onnxruntime rounds floats once and ties to even, LiteRT's integers twice and ties away.

    One value in a hundred differs by a step behind a layer; the softmax at the end, which is read
    in steps of 1/255, makes three of one.
    """
    path = quantised(tmp_path, activations, QuantType.QInt8)
    recognised = recognised_file(path)
    assert not recognised.declined
    names = {layers[0] for layers in recognised.layers.values()}
    assert {"first", "by_channel", "pointwise", "added", "gated", "joined", "logits"} <= names
    # Channels first at the edge alone: one image of int8 is turned, nothing else.
    assert recognised.module.script(show_meta=False).count("permute_dims") == 1
    for seed in range(100, 104):
        image = random_image(seed)
        (found,), _ = run_module(recognised, [image], tmp_path)
        (expected,) = judged_by_onnxruntime(onnx.load(path), {"image": image})
        assert np.abs(found - expected).max() <= 3.01 / 255


def test_sequences_are_images_of_one_row(tmp_path: Path) -> None:
    path = quantised(tmp_path, QuantType.QInt8, QuantType.QInt8, model=sequence_network())
    recognised = recognised_file(path)
    assert not recognised.declined
    kinds = [type(operator).__name__ for operator in recognised.operators.values()]
    assert kinds == [
        "Quantize",
        "Conv2D",
        "DepthwiseConv2D",
        "MaxPool",
        "Mean",
        "FullyConnected",
        "Dequantize",
    ]
    last = list(recognised.operators.values())[-1]
    assert isinstance(last, operators.Dequantize)
    for seed in range(100, 104):
        signal = random_image(seed, (1, 4, 40))
        (found,), _ = run_module(recognised, [signal], tmp_path)
        (expected,) = judged_by_onnxruntime(onnx.load(path), {"image": signal})
        assert np.abs(found - expected).max() <= 1.01 * last.scale


def test_what_stays_in_floats_is_named_with_a_reason(tmp_path: Path) -> None:
    path = quantised(tmp_path, QuantType.QUInt8, QuantType.QUInt8, per_channel=False)
    declined = {entry.layers[0]: entry for entry in recognised_file(path).declined}
    assert set(declined) == {"first", "by_channel", "pointwise", "logits"}
    assert declined["first"].operator == "conv2d"
    assert "zero point" in declined["first"].reason


def stored(name: str, value: Any, dtype: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def bytes_model(
    nodes: Sequence[onnx.NodeProto], constants: Sequence[onnx.TensorProto], kind: int
) -> onnx.ModelProto:
    """Return a model from x to y, both of stored values."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", kind, [1, 4, 6, 5])],
        [helper.make_tensor_value_info("y", kind, None)],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_convolutions_that_hide_their_quantisation_take_and_give_uint8(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    constants = [
        stored("xs", 0.04, "float32"),
        stored("xz", 120, "uint8"),
        # Beyond 7 bits, onnxruntime's kernel for uint8 saturates on a CPU without VNNI.
        stored("w", random.integers(-64, 64, (5, 4, 3, 3)), "int8"),
        stored("ws", 0.01, "float32"),
        stored("wz", 0, "int8"),
        stored("ys", 0.09, "float32"),
        stored("yz", 100, "uint8"),
        stored("b", random.integers(-900, 900, 5), "int32"),
    ]
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    model = bytes_model(
        [node("QLinearConv", inputs, "y", pads=[1, 1, 1, 1])], constants, TensorProto.UINT8
    )
    path = tmp_path / "hidden.onnx"
    onnx.save(model, path)
    recognised = recognised_file(path)
    assert [type(entry) for entry in recognised.operators.values()] == [operators.Conv2D]
    image = random.integers(0, 256, (1, 4, 6, 5)).astype("uint8")
    (found,), _ = run_module(recognised, [image], tmp_path)
    (expected,) = judged_by_onnxruntime(model, {"x": image})
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


def test_values_of_16_bits_stay_in_floats_with_a_reason(tmp_path: Path) -> None:
    constants = [stored("s", 0.04, "float32"), stored("z", 0, "int16")]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "real"),
        node("Sigmoid", ["real"], "squashed"),
        node("QuantizeLinear", ["squashed", "s", "z"], "y"),
    ]
    path = tmp_path / "wide.onnx"
    onnx.save(bytes_model(nodes, constants, TensorProto.INT16), path)
    (declined,) = recognised_file(path).declined
    assert declined.layers == ("squashed",)
    assert "int16" in declined.reason
