"""Probabilities as a tensor, where an exporter wrapped them into a map for each row."""

from __future__ import annotations

import onnx

from edgekit.models.onnx.graph import domain_of

_ZIPMAP = ("ai.onnx.ml", "ZipMap")


def without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Replace each ZipMap by the tensor that it wraps: a device returns only tensors."""
    wrapped = {node.output[0]: node for node in proto.graph.node if _is_map(node)}
    declared = {item.name: item for item in (*proto.graph.value_info, *proto.graph.input)}
    for node in wrapped.values():
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    for item in proto.graph.output:
        if item.name in wrapped:
            tensor = declared.get(wrapped[item.name].input[0])
            item.type.Clear()
            if tensor is None:
                item.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            else:
                item.type.CopyFrom(tensor.type)
    return proto


def said_of_maps(proto: onnx.ModelProto) -> list[str]:
    """Return a sentence on each map that `without_maps` replaces."""
    return [
        f"output {node.output[0]!r} is a tensor with a column for each class "
        f"({_classes(node)}), and not a map for each row"
        for node in proto.graph.node
        if _is_map(node)
    ]


def _is_map(node: onnx.NodeProto) -> bool:
    return (domain_of(node), node.op_type) == _ZIPMAP


def _classes(node: onnx.NodeProto) -> str:
    found = [onnx.helper.get_attribute_value(attribute) for attribute in node.attribute]
    names = [
        item.decode(errors="replace") if isinstance(item, bytes) else str(item)
        for values in found
        for item in values
    ]
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
