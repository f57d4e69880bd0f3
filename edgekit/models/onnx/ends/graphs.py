"""Writes [preprocess] and [postprocess] as two small ONNX graphs: before a model and behind it.

Models of every format get them: `joining.py` joins the imported graphs with the
imported model, and `models/ends/oracle.py` runs them before and after the model's own runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from edgekit.base.arrays import numpy_dtype
from edgekit.base.errors import ProjectError
from edgekit.base.tensors import TensorSpec
from edgekit.models.ends import Ends, check_names
from edgekit.models.ends.geometry import placement
from edgekit.models.onnx.ends.back import Picture, write_back
from edgekit.models.onnx.ends.boxes import Made
from edgekit.models.onnx.ends.front import model_size, write_front
from edgekit.models.onnx.ends.nodes import FLOAT, INT32, OPSET, UINT8, Nodes, of_model

_TYPES = {"classes": INT32, "mask": UINT8, "masks": UINT8}
"""The types of new outputs that are not float32."""


@dataclass(frozen=True)
class Graph:
    """A graph that stands before a model or behind it."""

    model: onnx.ModelProto
    tensors: tuple[str, ...]
    """The model's inputs that it makes, or the model's outputs that it takes, in order."""


def front_graph(ends: Ends, inputs: Sequence[TensorSpec]) -> Graph | None:
    """Return the graph from pictures to the model's inputs; ProjectError if they don't fit."""
    specs = {spec.name: spec for spec in inputs}
    check_names(ends.preprocess, list(specs))
    if not ends.pictures:
        return None
    nodes = Nodes("before")
    pictures = []
    for name, preprocess in ends.pictures.items():
        made = write_front(nodes, name, preprocess, specs[name])
        nodes.named(made, of_model(name))
        height, width = preprocess.size or model_size(specs[name], preprocess)
        shape = [height, width, preprocess.channels]
        pictures.append(helper.make_tensor_value_info(name, UINT8, shape))
    taken = tuple(ends.pictures)
    return Graph(_model(nodes, pictures, [_declared(specs[name]) for name in taken]), taken)


def back_graph(
    ends: Ends, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Graph | None:
    """Return the graph from the model's outputs to what they mean."""
    if ends.postprocess is None:
        return None
    nodes = Nodes("behind")
    specs = {spec.name: spec for spec in inputs}
    written = write_back(ends.postprocess, nodes, outputs, _picture(ends, specs))
    for spec in outputs:
        if spec.name not in written.consumed and spec.name in written.made:
            raise ProjectError(
                f"[postprocess] makes an output {spec.name!r}, and the model has another one of "
                "that name",
                hint="export the model with another name for it",
            )
    for name, made in written.made.items():
        nodes.named(made.value, name)
    results = [_result(name, made) for name, made in written.made.items()]
    taken = [spec for spec in outputs if spec.name in written.consumed]
    return Graph(
        _model(nodes, [_declared(spec) for spec in taken], results),
        tuple(spec.name for spec in taken),
    )


def _model(
    nodes: Nodes, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes.nodes, "ends", inputs, outputs, nodes.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _declared(spec: TensorSpec) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(spec.dtype))
    return helper.make_tensor_value_info(of_model(spec.name), kind, spec.shape)


def _result(name: str, made: Made) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPES.get(name, FLOAT), made.shape)


def _picture(ends: Ends, inputs: Mapping[str, TensorSpec]) -> Picture | None:
    """Return the picture of a program with one."""
    if len(ends.pictures) != 1:
        return None
    ((name, preprocess),) = ends.pictures.items()
    size = model_size(inputs[name], preprocess)
    height, width = preprocess.size or size
    (y, dy), (x, dx) = placement(preprocess, (height, width), size).back()
    return Picture(size, (x, dx, y, dy, float(width), float(height)))
