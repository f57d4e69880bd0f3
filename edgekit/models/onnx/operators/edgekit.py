"""Operators that ONNX does not have, in models that edgekit itself converts to ONNX."""

from __future__ import annotations

from tvm import relax

from edgekit.compiler.passes.indices import IndexRule, checked, counted_from_start
from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import Converters, cast, wide
from edgekit.models.onnx.values import dtype_of, is_known


def _from_start(node: Node) -> Outputs:
    """Check indices that may not be negative."""
    value = node.value(0)
    rule = IndexRule("", (int(node.get("extent")),))
    if is_known(value):
        return counted_from_start(value, rule)
    return node.emit(checked(node.expr(0), rule))


def _atan2(node: Node) -> Outputs:
    first, second = (wide(node, node.expr(position)) for position in (0, 1))
    return cast(node.emit(relax.op.atan2(first, second)), dtype_of(node.expr(0)))


EDGEKIT: Converters = {"Atan2": _atan2, "FromStart": _from_start}
