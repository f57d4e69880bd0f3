"""Convert the half-precision floats of an ONNX model to float32. The difference in results shows
the effect of the model's own precision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPES_IN_ATTRIBUTES = ("to", "dtype", "output_dtype")


def holds_halves(model: onnx.ModelProto) -> bool:
    """Tell whether any tensor that the model names is of half precision."""
    return (
        any(
            tensor.data_type in _HALVES
            for graph in graphs(model.graph)
            for tensor in _tensors(graph)
        )
        or any(
            item.type.tensor_type.elem_type in _HALVES
            for graph in graphs(model.graph)
            for item in (*graph.input, *graph.output)
        )
        or any(
            attribute.name in _TYPES_IN_ATTRIBUTES and attribute.i in _HALVES
            for graph in graphs(model.graph)
            for node in graph.node
            for attribute in node.attribute
        )
    )


def widened(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model in float32; None if it has functions, whose types are not tracked."""
    if len(model.functions):
        return None
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for graph in graphs(wide.graph):
        del graph.value_info[:]
        for tensor in _tensors(graph):
            if tensor.data_type in _HALVES:
                values = numpy_helper.to_array(tensor).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        for item in (*graph.input, *graph.output):
            if item.type.tensor_type.elem_type in _HALVES:
                item.type.tensor_type.elem_type = TensorProto.FLOAT
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name in _TYPES_IN_ATTRIBUTES and attribute.i in _HALVES:
                    attribute.i = TensorProto.FLOAT
    return wide


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and all bodies in its control flow."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)
            for body in attribute.graphs:
                yield from graphs(body)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
