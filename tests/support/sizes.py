"""A model whose sizes vary."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

LARGEST = 24
SHAPES = {"ids": f"1x(2..{LARGEST})", "scale": (3, 1, 1)}
WORDS = ("--shape", f"ids=1x(2..{LARGEST})", "--shape", "scale=3,1,1")


def write_sized(path: Path) -> Path:
    """Write exp(ids) * mask over a batch of one, with a scale for each of three channels."""
    named = {
        "ids": ["batch", "seq"],
        "mask": ["batch", "seq"],
        "scale": [3, "one", 1],
        "out": [3, "batch", "seq"],
    }
    tensors = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in named.items()}
    nodes = [
        helper.make_node("Exp", ["ids"], ["e"]),
        helper.make_node("Mul", ["e", "mask"], ["masked"]),
        helper.make_node("Mul", ["masked", "scale"], ["out"]),
    ]
    *inputs, output = tensors.values()
    graph = helper.make_graph(nodes, "sizes", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path
