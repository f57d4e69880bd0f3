"""Find the scales and zero points of a model's integer inputs and outputs.

ONNX has them on the adjacent nodes, not on the inputs and outputs themselves. An output of
QuantizeLinear is compared in its steps; an image for an input of DequantizeLinear is quantised with
its scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import onnx

from edgekit.base.tensors import OpenTensorSpec, Quantization, TensorSpec
from edgekit.models.onnx.importer import to_array

_Spec = TypeVar("_Spec", TensorSpec, OpenTensorSpec)

_OF_OUTPUT = {"QuantizeLinear": (1, 2), "QLinearConv": (6, 7), "QLinearMatMul": (6, 7)}
"""The inputs for scale and zero point of operators that produce integers."""
_OF_INPUT = {"DequantizeLinear": (1, 2), "QLinearConv": (1, 2), "QLinearMatMul": (1, 2)}
"""The inputs for scale and zero point of operators whose first input is integers."""
_MOVES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity")
"""Operators that do not change the value of any element."""


def outputs_with_steps(graph: onnx.GraphProto, specs: Sequence[_Spec]) -> tuple[_Spec, ...]:
    given = {item.name for item in graph.input}
    makers = {
        name: node for node in graph.node for name in node.output if name and name not in given
    }
    known = _known_arrays(graph)

    def quantization(name: str) -> Quantization | None:
        node = makers.get(name)
        moved = False
        for _ in graph.node:  # a broken graph may lead round in a circle
            if node is None or node.op_type not in _MOVES:
                break
            node, moved = makers.get(node.input[0]), True
        if node is None or node.op_type not in _OF_OUTPUT:
            return None
        return _read(node, _OF_OUTPUT[node.op_type], known, per_axis=not moved)

    return tuple(_with(spec, quantization(spec.name)) for spec in specs)


def inputs_with_steps(
    graph: onnx.GraphProto, specs: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...]:
    known = _known_arrays(graph)

    def quantization(name: str) -> Quantization | None:
        readers = [node for node in graph.node if name in node.input]
        found = {
            _read(node, _OF_INPUT[node.op_type], known, per_axis=True)
            if node.op_type in _OF_INPUT and node.input[0] == name
            else None
            for node in readers
        }
        return found.pop() if len(found) == 1 else None

    return tuple(_with(spec, quantization(spec.name)) for spec in specs)


def _known_arrays(graph: onnx.GraphProto) -> Mapping[str, onnx.TensorProto]:
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensors[node.output[0]] = attribute.t
    return tensors


def _read(
    node: onnx.NodeProto,
    positions: tuple[int, int],
    known: Mapping[str, onnx.TensorProto],
    *,
    per_axis: bool,
) -> Quantization | None:
    at_scale, at_zero = positions
    scale = known.get(node.input[at_scale]) if len(node.input) > at_scale else None
    if scale is None:
        return None
    scales = np.atleast_1d(to_array(scale)).astype("float64")
    zeros = np.zeros(scales.shape, "int64")
    if len(node.input) > at_zero and node.input[at_zero]:
        zero = known.get(node.input[at_zero])
        if zero is None:
            return None
        zeros = np.atleast_1d(to_array(zero)).astype("int64")
    is_single = scales.size == 1
    if scales.ndim != 1 or zeros.shape != scales.shape or not (is_single or per_axis):
        return None
    axis = next((int(item.i) for item in node.attribute if item.name == "axis"), 1)
    return Quantization(
        tuple(float(value) for value in scales),
        tuple(int(value) for value in zeros),
        None if is_single else axis,
    )


def _with(spec: _Spec, quantization: Quantization | None) -> _Spec:
    if quantization is None or not spec.dtype.startswith(("int", "uint")):
        return spec
    return replace(spec, quantization=quantization)
