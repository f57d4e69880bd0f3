"""Other shapes than those that an exporter left in the file, where the graph allows them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from edgekit.base.errors import ModelError
from edgekit.base.options import option
from edgekit.models.model import ModelSource
from edgekit.models.onnx.graph import label

Shape = tuple[int, ...]
_TARGETED = frozenset({"Expand", "Reshape", "Resize", "Upsample"})
"""Operators that an exporter gives the shape of their result."""


def with_given_shapes(proto: onnx.ModelProto, source: ModelSource) -> onnx.ModelProto:
    """Write the given shapes into the file's inputs, over those that the file fixes."""
    for item in proto.graph.input:
        dims = item.type.tensor_type.shape.dim
        given = source.shapes.get(item.name, ())
        if len(given) == len(dims):  # Another rank is refused when the inputs are bound.
            for dim, extent in zip(dims, given, strict=True):
                dim.dim_value = extent
    del proto.graph.value_info[:]
    for item in proto.graph.output:
        item.type.tensor_type.ClearField("shape")
    return proto


def check_consistent(before: onnx.ModelProto, source: ModelSource) -> None:
    """Raise ModelError where the graph itself holds a dimension that the given shapes change."""
    old = _shapes(before)
    after = onnx.ModelProto()
    after.CopyFrom(before)
    new = _shapes(with_given_shapes(after, source))
    for node in before.graph.node:
        if node.op_type not in _TARGETED or not node.input:
            continue
        data, result = node.input[0], node.output[0]
        if {data, result} <= old.keys() & new.keys():
            _check_kept(node, (old[data], old[result]), (new[data], new[result]))
    names = [item.name for item in before.graph.input if item.name in source.shapes]
    changed = {(old[name][:1], new[name][:1]) for name in names if name in old and name in new}
    if len(changed) != 1 or len(names) < len(source.shapes):
        return
    ((was, becomes),) = changed
    for item in before.graph.output:
        if was != becomes and old.get(item.name, ())[:1] == was == new.get(item.name, ())[:1]:
            raise _contradiction(
                f"dimension 0 of {names[0]!r} becomes {becomes[0]}, and the graph makes the "
                f"output {item.name!r} with {was[0]} all the same"
            )


def _check_kept(node: onnx.NodeProto, old: tuple[Shape, Shape], new: tuple[Shape, Shape]) -> None:
    """Check that the leading dimensions that a node kept are kept in the new shapes as well."""
    for axis, (came, went) in enumerate(zip(*old, strict=False)):
        if came != went or axis >= min(map(len, new)):
            return
        if new[0][axis] != new[1][axis]:
            raise _contradiction(
                f"dimension {axis} of {node.input[0]!r} becomes {new[0][axis]}, and "
                f"{node.op_type} (node {label(node)!r}) makes {new[1][axis]} of it"
            )


def _contradiction(said: str) -> ModelError:
    return ModelError(
        f"the graph does not allow the given shapes: {said}",
        hint=f"give {option('shape')} the file's own extent there, or export the model with open "
        "dimensions",
    )


def _shapes(proto: onnx.ModelProto) -> Mapping[str, Shape]:
    """Return every shape that ONNX infers in full."""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):
        return {}  # The import says what is wrong.
    graph = inferred.graph
    found = {}
    for item in (*graph.input, *graph.value_info, *graph.output):
        tensor = item.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            found[item.name] = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    return found
