"""Puts [preprocess] and [postprocess] around an ONNX model as operators of its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import onnx
from onnx import helper

from edgekit.base.errors import ModelError, ProjectError, UnsupportedModelError
from edgekit.base.tensors import TensorSpec
from edgekit.models.ends import NO_ENDS, Ends, check_names
from edgekit.models.ends.geometry import placement
from edgekit.models.model import ModelSource
from edgekit.models.onnx.binding import bind, declared
from edgekit.models.onnx.ends.back import Picture, write_back
from edgekit.models.onnx.ends.front import model_size, write_front
from edgekit.models.onnx.ends.nodes import FLOAT, INT32, OLDEST_OPSET, UINT8, Nodes
from edgekit.models.onnx.graph import all_nodes, opsets_of, subgraphs
from edgekit.models.onnx.quantised_ends import inputs_with_steps, outputs_with_steps

_TYPES = {"classes": INT32, "mask": UINT8}
"""The types of new outputs that are not float32."""


def with_ends(model: onnx.ModelProto, source: ModelSource) -> onnx.ModelProto:
    """Return the model with the ends of its source around it; ProjectError if they don't fit."""
    ends = source.ends
    if not ends:
        return model
    opset = opsets_of(model)[""]
    if opset < OLDEST_OPSET:
        raise UnsupportedModelError(
            f"{source.path.name} has ONNX opset {opset}; [preprocess] and [postprocess] need "
            f"{OLDEST_OPSET} or newer",
            hint="export it again with a newer opset"
            + ("" if ends.postprocess else ', or write on = "host" in [preprocess]'),
        )
    bound = bind(model.graph, replace(source, ends=NO_ENDS))
    specs = {spec.name: spec for spec in inputs_with_steps(model.graph, bound.inputs)}
    check_names(ends.preprocess, list(specs))
    _close(model.graph, list(specs.values()))
    if ends.postprocess is not None:
        _write_back(model, ends, specs, opset)
    for name, preprocess in ends.pictures.items():
        nodes = Nodes(f"before/{name}", opset)
        inside = _fresh(model.graph, name)
        _rename(model.graph, name, inside)
        nodes.nodes.append(
            helper.make_node(
                "Identity",
                [write_front(nodes, name, preprocess, specs[name])],
                [inside],
                name=f"edgekit/before/{name}",
            )
        )
        height, width = preprocess.size or model_size(specs[name], preprocess)
        shape = [height, width, preprocess.channels]
        place = [item.name for item in model.graph.input].index(inside)
        model.graph.input[place].CopyFrom(helper.make_tensor_value_info(name, UINT8, shape))
        _insert(model.graph, nodes, first=True)
    return model


def _write_back(
    model: onnx.ModelProto, ends: Ends, inputs: Mapping[str, TensorSpec], opset: int
) -> None:
    graph, nodes = model.graph, Nodes("behind", opset)
    outputs = outputs_with_steps(graph, _output_specs(model))
    assert ends.postprocess is not None
    written = write_back(ends.postprocess, nodes, outputs, _picture(ends, inputs))
    kept = [deepcopy(item) for item in graph.output if item.name not in written.consumed]
    for item in kept:
        if item.name in written.made:
            raise ProjectError(
                f"[postprocess] makes an output {item.name!r}, and the model has another one of "
                "that name",
                hint="export the model with another name for it",
            )
    del graph.output[:]
    _insert(graph, nodes, first=False)
    for name in written.made:
        _rename(graph, name, _fresh(graph, name))
    for name, made in written.made.items():
        node = helper.make_node("Identity", [made.value], [name], name=f"edgekit/{name}")
        graph.node.append(node)
        kind = _TYPES.get(name, FLOAT)
        graph.output.append(helper.make_tensor_value_info(name, kind, made.shape))
    graph.output.extend(kept)


def _picture(ends: Ends, inputs: Mapping[str, TensorSpec]) -> Picture | None:
    """Return the picture of a program with one."""
    if len(ends.pictures) != 1:
        return None
    ((name, preprocess),) = ends.pictures.items()
    size = model_size(inputs[name], preprocess)
    height, width = preprocess.size or size
    (y, dy), (x, dx) = placement(preprocess, (height, width), size).back()
    return Picture(size, (x, dx, y, dy, float(width), float(height)))


def _output_specs(model: onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """Return the outputs, every extent known: by declaration or by inference."""
    found = declared(list(model.graph.output))
    if any(spec.open_dimensions for spec in found):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError) as error:
            raise ModelError(
                f"the shapes of the model's outputs can't be inferred: {error}",
                hint="export the model with fixed shapes",
            ) from error
        found = declared(list(inferred.graph.output))
    for spec in found:
        if spec.open_dimensions:
            raise ModelError(
                f"the shape of the output {spec.name} isn't known: {list(spec.shape)}",
                hint="export the model with fixed shapes, so that [postprocess] can take it",
            )
    return tuple(
        TensorSpec(spec.name, spec.dtype, tuple(int(extent) for extent in spec.shape))
        for spec in found
    )


def _close(graph: onnx.GraphProto, specs: Sequence[TensorSpec]) -> None:
    """Write the shapes of all inputs into the graph."""
    shapes = {spec.name: spec.shape for spec in specs}
    for item in graph.input:
        if item.name in shapes:
            kind = item.type.tensor_type.elem_type
            item.CopyFrom(helper.make_tensor_value_info(item.name, kind, shapes[item.name]))


def _fresh(graph: onnx.GraphProto, name: str) -> str:
    """Return a name like this one that no tensor of the graph has."""
    taken = {value for node in all_nodes(graph.node) for value in (*node.input, *node.output)}
    taken |= {item.name for item in (*graph.input, *graph.initializer)}
    fresh = f"{name}/model"
    while fresh in taken:
        fresh += "_"
    return fresh


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Give a tensor another name, everywhere."""
    for items in (graph.input, graph.initializer, graph.value_info, graph.output):
        for item in items:
            if item.name == old:
                item.name = new
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == old:
                    names[place] = new
        for inner in subgraphs(node):
            _rename(inner, old, new)


def _insert(graph: onnx.GraphProto, nodes: Nodes, *, first: bool) -> None:
    graph.initializer.extend(nodes.initializers)
    if not first:
        graph.node.extend(nodes.nodes)
        return
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes.nodes, *rest])
