"""Comparisons, logic and selection, and the indices of the largest elements.

Booleans stay in a region or cross its boundary as bytes. Indices have 32 bits in TensorRT, and the
runner widens them at the boundary. Nothing in a region computes with them.
"""

from __future__ import annotations

from functools import partial

from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT, integers, positive
from edgekit.backends.tensorrt.rules.node import checked, node, rule, shape, typed

_COMPARISONS = {
    "greater": "Greater",
    "less": "Less",
    "greater_equal": "GreaterOrEqual",
    "less_equal": "LessOrEqual",
    "equal": "Equal",
    "not_equal": "not_equal",
}
_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_MOST_CHOSEN = 3840
"""The most elements that TensorRT's TopK returns."""


def rules() -> list[Rule]:
    return [
        _any_rule(),
        _full_rule("full"),
        _full_rule("full_like"),
        *(rule(operator, partial(_comparison, kind), 2) for operator, kind in _COMPARISONS.items()),
        *(rule(operator, partial(_logic, kind), 2) for operator, kind in _LOGIC.items()),
        rule("logical_not", _not),
        rule("where", _where, arguments=3),
        rule("astype", _cast),
        rule("argmax", partial(_best, "ArgMax")),
        rule("argmin", partial(_best, "ArgMin")),
        rule("topk", _topk),
        rule("cumsum", _cumulative),
    ]


def _comparison(kind: str, match: Match) -> Layer:
    return node(match, kind, ("input", "input1"), types={OUT: "bool"})


def _logic(kind: str, match: Match) -> Layer:
    truths = dict.fromkeys(("input", "input1", OUT), "bool")
    return node(match, kind, ("input", "input1"), types=truths)


def _not(match: Match) -> Layer:
    return node(match, "Not", types={"input": "bool", OUT: "bool"})


def _where(match: Match) -> Layer:
    return node(match, "Where", ("input", "input1", "input2"), types={"input": "bool"})


def _cast(match: Match) -> Layer:
    """Cast between booleans and floats, as masks do, or to the same type."""
    kinds = (match.dtype("input"), match.dtype(OUT))
    if kinds == ("bool", "float32"):
        return node(match, "truth_to_float", types={"input": "bool"})
    if kinds == ("float32", "bool"):
        return node(match, "float_to_truth", types={OUT: "bool"})
    if kinds == ("float32", "float32"):
        return node(match, "Identity")
    raise Refused(f"it makes {kinds[1]} of {kinds[0]}")


def _best(kind: str, match: Match) -> Layer:
    attrs, rank = match.attrs(OUT), len(shape(match, "input"))
    if attrs.axis is None:
        raise Refused("it is over all axes at once")
    _require_axes(rank)
    settings: dict[str, Setting] = {
        "axis": int(attrs.axis) % rank,
        "keepdims": int(bool(attrs.keepdims)),
    }
    return node(match, kind, settings=settings, types={OUT: "int64"})


def _require_axes(rank: int) -> None:
    if rank < 2:
        raise Refused("its input has one axis, and TensorRT chooses where there are two or more")


def _topk(match: Match) -> Layer:
    attrs, extents = match.attrs(OUT), shape(match, "input")
    axis = int(attrs.axis) % len(extents)
    _require_axes(len(extents))
    count = int(attrs.k) if 1 <= int(attrs.k) <= extents[axis] else extents[axis]
    if str(attrs.ret_type) != "both":
        raise Refused(f"it gives its {attrs.ret_type} alone")
    if str(attrs.dtype) != "int64":
        raise Refused(f"its numbers are {attrs.dtype}")
    if count > _MOST_CHOSEN:
        raise Refused(f"it chooses {count} elements, and TensorRT {_MOST_CHOSEN}")
    for kind in match.expression(OUT).ty.fields:
        checked([int(extent) for extent in kind.shape])
    # The result is a tuple, which has no shape.
    alone = match.with_part(OUT, match.expression("input"))
    settings: dict[str, Setting] = {"axis": axis, "largest": int(bool(attrs.largest)), "sorted": 1}
    return node(alone, "TopK", operands={1: [count]}, settings=settings)


def _cumulative(match: Match) -> Layer:
    attrs, rank = match.attrs(OUT), len(shape(match, "input"))
    if attrs.axis is None:
        raise Refused("it is over the tensor as one row")
    settings: dict[str, Setting] = {"exclusive": int(bool(attrs.exclusive))}
    return node(match, "CumSum", operands={1: int(attrs.axis) % rank}, settings=settings)


def _any(match: Match) -> Layer:
    """Reduce by any; TVM spells it as the maximum of bytes."""
    rank = len(typed(match, "input", "bool"))
    attrs = match.attrs("largest")
    axes = tuple(range(rank)) if attrs.axis is None else positive(integers(attrs.axis), rank)
    settings: dict[str, Setting] = {"axes": axes, "keepdims": int(bool(attrs.keepdims))}
    truths = {"input": "bool", OUT: "bool"}
    return node(match, "any", settings=settings, types=truths)


def _any_rule() -> Rule:
    truths = wildcard()
    numbers = is_op("relax.astype")(truths)
    largest = is_op("relax.max")(numbers)
    made = is_op("relax.astype")(largest)
    return Rule("any", made, {"input": truths, "largest": largest, OUT: made}, _any)


def _full_rule(operator: str) -> Rule:
    wanted, value = wildcard(), is_const()
    call = is_op(f"relax.{operator}")(wanted, value)
    return Rule(operator, call, {"value": value, OUT: call}, _full)


def _full(match: Match) -> Layer:
    import numpy as np

    filled = np.full(shape(match, OUT), match.weights("value"), np.float32)
    return Layer("Identity", (), {}, {"operand0": filled})
