"""Operators that ONNX does not have, in graphs that edgekit itself writes or converts to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from edgekit.compiler.passes.indices import IndexRule, checked, counted_from_start
from edgekit.compiler.selecting import Suppression, boxes_kept, places_of
from edgekit.models.arithmetic import math_function
from edgekit.models.onnx.node import Converter, Node, Outputs
from edgekit.models.onnx.operators.common import Converters, cast, wide
from edgekit.models.onnx.values import Expr, Value, constant, dtype_of, is_known


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


def _places(node: Node) -> Outputs:
    """Return the places of a vector's true elements, zeros behind them, and their number."""
    return _counted(node, places_of, [node.expr(0)])


def _boxes_kept(node: Node) -> Outputs:
    """Suppress boxes: ONNX's NonMaxSuppression, with the number of boxes that count behind its
    inputs, and the number of boxes that it keeps behind its output."""
    what = Suppression(int(node.get("most")), bool(node.get("center_point_box", 0)), node.has(4))
    given = [node.expr(place) if node.has(place) else None for place in range(6)]
    defaults = {2: (0, "int64"), 3: (0.0, "float32"), 4: (0.0, "float32")}
    vectors = [
        constant(*defaults[place]) if given[place] is None else given[place]
        for place in range(2, 6)
    ]
    flat = [node.emit(relax.op.reshape(vector, (1,))) for vector in vectors]
    return _counted(node, lambda *operands: boxes_kept(what, operands), [*given[:2], *flat])


def _counted(node: Node, kernel: Callable[..., Any], operands: Sequence[Expr]) -> list[Value]:
    """Call a kernel with a result and its count; return the count as a scalar."""
    both = node.block.emit_te(kernel, *operands, primfunc_name_hint=node.operator.lower())
    found, count = (node.emit(relax.TupleGetItem(both, place)) for place in range(2))
    return [found, node.emit(relax.op.reshape(count, ()))]


EDGEKIT: Converters = {
    "Atan2": _atan2,
    "BesselJ0": _by_libm("j0"),
    "BesselJ1": _by_libm("j1"),
    "BesselY0": _by_libm("y0"),
    "BesselY1": _by_libm("y1"),
    "BoxesKept": _boxes_kept,
    "Erfc": _by_libm("erfc"),
    "FromStart": _from_start,
    "Lgamma": _by_libm("lgamma"),
    "Places": _places,
}
