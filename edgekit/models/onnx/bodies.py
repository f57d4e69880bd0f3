"""Operators defined by other operators: the model's own functions, and ONNX's.

ONNX defines many operators (losses, LayerNormalization, CenterCropPad, ...) by a body of simpler
ones. If edgekit has no converter for such an operator, it imports the body instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx


@dataclass(frozen=True)
class Body:
    """The definition of an operator: formal inputs and outputs, nodes, and their operator sets."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    opsets: Mapping[str, int]


def has_body(operator: str, domain: str, opset: int) -> bool:
    schema = _schema(operator, domain, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(node: onnx.NodeProto, opset: int, input_types: Sequence[onnx.TypeProto]) -> Body | None:
    """Return ONNX's body of this operator, with the node's attributes inserted."""
    schema = _schema(node.op_type, node.domain, opset)
    if schema is None:
        return None
    if schema.has_function:
        version = _newest(schema.function_opset_versions, opset)
        text = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        text = schema.get_context_dependent_function_with_opset_version(
            version,
            node.SerializeToString(),
            [kind.SerializeToString() for kind in input_types],
        )
    else:
        return None
    if not text:
        return None
    return body_from(onnx.FunctionProto.FromString(text), node, schema)


def body_from(
    function: onnx.FunctionProto, node: onnx.NodeProto, schema: onnx.defs.OpSchema | None = None
) -> Body:
    """Return a function's body with the calling node's attributes (or their defaults) inserted."""
    given: dict[str, onnx.AttributeProto] = {}
    if schema is not None:
        for name, formal in schema.attributes.items():
            if formal.default_value.type:
                given[name] = formal.default_value
    given.update({attribute.name: attribute for attribute in function.attribute_proto})
    given.update({attribute.name: attribute for attribute in node.attribute})
    return Body(
        tuple(function.input),
        tuple(function.output),
        tuple(_with_attributes(inner, given) for inner in function.node),
        {item.domain: item.version for item in function.opset_import},
    )


def _with_attributes(
    node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto:
    """Return the node with references to the caller's attributes replaced by their values."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            actual = given.get(attribute.ref_attr_name)
            if actual is not None:
                copy = result.attribute.add()
                copy.CopyFrom(actual)
                copy.name = attribute.name
            continue
        copy = result.attribute.add()
        copy.CopyFrom(attribute)
        if attribute.HasField("g"):
            nodes = [_with_attributes(inner, given) for inner in attribute.g.node]
            del copy.g.node[:]
            copy.g.node.extend(nodes)
    return result


def _schema(operator: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    if not onnx.defs.has(operator, opset, domain):
        return None
    return onnx.defs.get_schema(operator, opset, domain)


def _newest(versions: Sequence[int], opset: int) -> int:
    """Return the newest version of a body that the model may use, else the oldest."""
    return max((version for version in versions if version <= opset), default=min(versions))
