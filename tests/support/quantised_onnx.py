"""Quantised convolutions and dense layers drawn at random, as ONNX models of QuantizeLinear and
DequantizeLinear: as onnxruntime's quantiser writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgekit.backends.base import Region

Draw = Callable[[st.SearchStrategy[Any]], Any]
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def layers_in_integers(regions: Sequence[Region]) -> int:
    """How many of them compute in the library's own integers."""
    return sum(step.rule.startswith("int8") for region in regions for step in region.steps)


@dataclass(frozen=True, repr=False)
class QuantisedOnnx:
    model: onnx.ModelProto
    shape: tuple[int, ...]
    dtype: str
    seed: int
    told: str

    def __repr__(self) -> str:
        return self.told

    def values(self) -> np.ndarray:
        limits = np.iinfo(self.dtype)
        random = np.random.default_rng(self.seed)
        return random.integers(limits.min, limits.max + 1, self.shape).astype(self.dtype)


@st.composite
def onnx_layers(draw: Draw) -> QuantisedOnnx:
    kind = draw(st.sampled_from(("Conv", "Conv", "depthwise", "Gemm", "MatMul")))
    dtype = draw(st.sampled_from(("int8", "uint8")))
    seed = draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    channels = draw(st.sampled_from((1, 3, 4, 8, 15, 16, 32)))
    outputs = draw(st.sampled_from((1, 3, 8, 16, 24)))
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    zeros = [draw(st.sampled_from((lowest, lowest + 123, lowest + 145, highest))) for _ in "io"]
    attributes: dict[str, Any] = {}
    shape: tuple[int, ...] = (1, channels)
    if kind in ("Gemm", "MatMul"):
        turned = kind == "Gemm" and draw(st.booleans())
        attributes = {"transB": 1} if turned else {}
        weight = (outputs, channels) if turned else (channels, outputs)
        axis, depth = (0 if turned else 1), channels
    else:
        kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        shape = (1, channels, *(draw(st.integers(side, side + 9)) for side in kernel))
        members = channels
        if kind == "depthwise":
            outputs, members = channels, 1
            attributes["group"] = channels
        weight, axis, depth = (outputs, members, *kernel), 0, members * kernel[0] * kernel[1]
        attributes["strides"] = [draw(st.integers(1, 2)) for _ in kernel]
        attributes["pads"] = [draw(st.integers(0, side - 1)) for side in (*kernel, *kernel)]
    per_channel = draw(st.booleans())
    scales = random.uniform(0.002, 0.02, outputs if per_channel else ()).astype("float32")
    source = np.float32(random.uniform(0.01, 0.1))
    arrays = {
        "x.scale": source,
        "x.zero": np.array(zeros[0], dtype),
        "w": random.integers(-127, 128, weight).astype("int8"),
        "w.scale": scales,
        "w.zero": np.zeros(scales.shape, "int8"),
        "b": random.integers(-900, 900, outputs).astype("int32"),
        "b.scale": (scales * source).astype("float32"),
        "b.zero": np.zeros(scales.shape, "int32"),
        # Wide enough for most sums, so that few results are cut off.
        "y.scale": np.float32(source * scales.mean() * 60 * depth**0.5),
        "y.zero": np.array(zeros[1], dtype),
        "low": np.float32(-0.5),
        "high": np.float32(6.0),
    }
    nodes = [_load("x"), _load("w", axis=axis)]
    given = ["x.real", "w.real"]
    if kind != "MatMul" and draw(st.booleans()):
        nodes.append(_load("b", axis=0))
        given.append("b.real")
    operator = "Conv" if kind == "depthwise" else kind
    nodes.append(helper.make_node(operator, given, ["sum"], name="/layer", **attributes))
    activation = draw(st.sampled_from(("", "Relu", "Clip")))
    if activation:
        bounds = ["low", "high"] if activation == "Clip" else []
        nodes.append(helper.make_node(activation, ["sum", *bounds], ["bent"], name="/bent"))
    last = "bent" if activation else "sum"
    nodes.append(helper.make_node("QuantizeLinear", [last, "y.scale", "y.zero"], ["y"]))
    told = f"{kind} {dtype} {shape} {weight} {attributes} {activation} zeros {zeros}"
    told += f" {given} scales {per_channel} seed {seed}"
    return QuantisedOnnx(_model(nodes, arrays, shape, dtype, dtype), shape, dtype, seed, told)


def quantised_product(axis: int = 1, result: str = "int8", **arrays: Any) -> onnx.ModelProto:
    """4 numbers times a square of weights, plus a bias; arrays by name, with _ for dots."""
    random = np.random.default_rng(5)
    own: dict[str, Any] = {
        "x.scale": np.float32(0.05),
        "x.zero": np.int8(3),
        "w": random.integers(-127, 128, (4, 4)).astype("int8"),
        "w.scale": np.full(4, 0.01, "float32"),
        "w.zero": np.zeros(4, "int8"),
        "b": random.integers(-900, 900, 4).astype("int32"),
        "b.scale": np.full(4, 0.05 * 0.01, "float32"),
        "b.zero": np.zeros(4, "int32"),
        "y.scale": np.float32(0.1),
        "y.zero": np.zeros((), result),
    }
    own |= {name.replace("_", "."): value for name, value in arrays.items()}
    nodes = [
        *(_load("x"), _load("w", axis=axis), _load("b", axis=0)),
        helper.make_node("Gemm", ["x.real", "w.real", "b.real"], ["sum"], name="/layer"),
        helper.make_node("QuantizeLinear", ["sum", "y.scale", "y.zero"], ["y"]),
    ]
    return _model(nodes, own, (1, 4), "int8", result)


def quantised_depthwise(kernel: tuple[int, int], pads: list[int]) -> onnx.ModelProto:
    """Over 16 channels of 9x11, every other row and column."""
    random = np.random.default_rng(6)
    arrays = {
        "x.scale": np.float32(0.05),
        "x.zero": np.int8(-5),
        "w": random.integers(-127, 128, (16, 1, *kernel)).astype("int8"),
        "w.scale": np.float32(0.01),
        "w.zero": np.int8(0),
        "y.scale": np.float32(0.08),
        "y.zero": np.int8(-5),
    }
    window = {"strides": [2, 2], "pads": pads, "group": 16}
    nodes = [
        *(_load("x"), _load("w", axis=0)),
        helper.make_node("Conv", ["x.real", "w.real"], ["sum"], name="/layer", **window),
        helper.make_node("QuantizeLinear", ["sum", "y.scale", "y.zero"], ["y"]),
    ]
    return _model(nodes, arrays, (1, 16, 9, 11), "int8", "int8")


def _load(name: str, **attributes: Any) -> onnx.NodeProto:
    names = [name, f"{name}.scale", f"{name}.zero"]
    return helper.make_node("DequantizeLinear", names, [f"{name}.real"], **attributes)


def _model(
    nodes: list[onnx.NodeProto],
    arrays: dict[str, Any],
    shape: tuple[int, ...],
    dtype: str,
    result: str,
) -> onnx.ModelProto:
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TYPES[dtype], shape)],
        [helper.make_tensor_value_info("y", TYPES[result], None)],
        [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in arrays.items()
            if name in read
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
