"""ONNX models with loops: recurrent layers of every kind, Scan and Loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import onnx_model

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LAYERS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "plain": ("RNN", 1, {}),
    "reverse": ("RNN", 1, {"direction": "reverse", "clip": 0.4}),
    "gru": ("GRU", 2, {"direction": "bidirectional"}),
    "linear": ("GRU", 1, {"linear_before_reset": 1}),
    "both": ("LSTM", 2, {"direction": "bidirectional"}),
    "coupled": ("LSTM", 1, {"input_forget": 1}),
}
"""The operator, its directions and its attributes."""


def recurrent(steps: int, batch: int, hidden: int, *, lengths: bool) -> onnx.ModelProto:
    """Layers of every kind on one input, with states, biases and peepholes; with `lengths` each
    sequence of the batch has its own."""
    random = np.random.default_rng(steps + 10 * batch + hidden)
    weights: dict[str, np.ndarray] = {}
    nodes, outputs = [], []

    def weight(name: str, *shape: int) -> str:
        weights[name] = (random.standard_normal(shape) / 2).astype("float32")
        return name

    if lengths:
        weights["lengths"] = random.integers(1, steps + 1, batch).astype("int32")
    for name, (operator, directions, attributes) in LAYERS.items():
        rows = GATES[operator] * hidden
        given = [
            "x",
            weight(f"{name}_w", directions, rows, 5),
            weight(f"{name}_r", directions, rows, hidden),
            weight(f"{name}_b", directions, 2 * rows),
            "lengths" if lengths else "",
            weight(f"{name}_h", directions, batch, hidden),
        ]
        made = [f"{name}_all", f"{name}_last"]
        if operator == "LSTM":
            given += [
                weight(f"{name}_c", directions, batch, hidden),
                weight(f"{name}_p", directions, 3 * hidden),
            ]
            made.append(f"{name}_cell")
        nodes.append(
            helper.make_node(operator, given, made, f"/{name}", hidden_size=hidden, **attributes)
        )
        outputs += made
    return onnx_model(nodes, {"x": [steps, batch, 5]}, outputs, weights)


def _value(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def scan(steps: int) -> onnx.ModelProto:
    """A Scan forwards and backwards over axis 1, whose body reads a tensor from outside."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "weight"], ["moved"], "/scan/MatMul"),
            helper.make_node("Add", ["moved", "one"], ["with_one"], "/scan/one"),
            helper.make_node("Mul", ["with_one", "other"], ["scaled"], "/scan/other"),
            helper.make_node("Tanh", ["scaled"], ["next"], "/scan/Tanh"),
            helper.make_node("Add", ["next", "bias"], ["piece"], "/scan/piece"),
        ],
        "body",
        [_value("state", [2, 4]), _value("one", [2, 4]), _value("other", [2, 4])],
        [_value("next", [2, 4]), _value("piece", [2, 4])],
    )
    node = helper.make_node(
        "Scan",
        ["start", "x", "x"],
        ["last", "pieces"],
        "/scan",
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[1, 1],
        scan_input_directions=[0, 1],
        scan_output_axes=[1],
        scan_output_directions=[1],
    )
    weight = np.random.default_rng(3).standard_normal((4, 4)).astype("float32")
    shapes = {"x": [2, steps, 4], "start": [2, 4], "bias": [4]}
    return onnx_model([node], shapes, ["last", "pieces"], {"weight": weight})


def loop(steps: int) -> onnx.ModelProto:
    """A Loop that gathers by its own counter and carries an integer beside a float."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["running"], ["goes_on"]),
            helper.make_node("Gather", ["x", "k"], ["row"], "/loop/Gather"),
            helper.make_node("Add", ["sum", "row"], ["next"], "/loop/Add"),
            helper.make_node("Add", ["count", "k"], ["counted"], "/loop/count"),
            helper.make_node("Mul", ["next", "row"], ["piece"], "/loop/Mul"),
        ],
        "body",
        [
            _value("k", [], TensorProto.INT64),
            _value("running", [], TensorProto.BOOL),
            _value("sum", [3]),
            _value("count", [], TensorProto.INT64),
        ],
        [
            _value("goes_on", [], TensorProto.BOOL),
            _value("next", [3]),
            _value("counted", [], TensorProto.INT64),
            _value("piece", [3]),
        ],
    )
    node = helper.make_node(
        "Loop", ["times", "true", "start", "zero"], ["total", "count", "pieces"], "/loop", body=body
    )
    end = helper.make_node("Cast", ["count"], ["counted"], to=TensorProto.FLOAT)
    weights = {"times": np.array(steps), "true": np.array(True), "zero": np.array(0)}
    graph = helper.make_graph(
        [node, end],
        "loop",
        [_value("x", [steps, 3]), _value("start", [3])],
        [_value("total", [3]), _value("counted", []), _value("pieces", [steps, 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
