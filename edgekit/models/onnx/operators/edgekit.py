"""Operators that ONNX does not have, in models that edgekit itself converts to ONNX."""

from __future__ import annotations

from tvm import relax

from edgekit.compiler.passes.indices import IndexRule, checked, counted_from_start
from edgekit.models.arithmetic import math_function
from edgekit.models.onnx.node import Converter, Node, Outputs
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


def _by_libm(name: str) -> Converter:
    """Compute a function that loses digits where it is composed from others."""

    def convert(node: Node) -> Outputs:
        value = wide(node, node.expr(0))
        return cast(math_function(node.block, name, value), dtype_of(node.expr(0)))

    return convert


EDGEKIT: Converters = {
    "Atan2": _atan2,
    "Erfc": _by_libm("erfc"),
    "FromStart": _from_start,
    "Lgamma": _by_libm("lgamma"),
}
