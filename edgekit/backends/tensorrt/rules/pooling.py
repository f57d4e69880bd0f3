"""Pooling over windows and over whole images, and reductions, by the rules for plain tensors."""

from __future__ import annotations

from edgekit.backends.base import Layer, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.plain.rules import Takes
from edgekit.backends.plain.rules import pooling as plain
from edgekit.backends.rule_tools import OUT, integers, positive
from edgekit.backends.tensorrt.rules.node import MOST_AXES, node, rule, shape

_REDUCTIONS = {
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
}
_NONE: frozenset[str] = frozenset()
_WINDOWS = Takes("TensorRT", MOST_AXES, *(_NONE,) * 7)


def rules() -> list[Rule]:
    windows = [_as_node(found) for found in plain.rules(_WINDOWS) if found.name != "mean"]
    return [
        *windows,
        *(_as_node(_in_space(kind)) for kind in ("max", "avg")),
        *(rule(operator, _reduction) for operator in _REDUCTIONS),
        rule("sum", _sum),
    ]


def _in_space(kind: str) -> Rule:
    return rule(f"nn.{kind}_pool3d", lambda match: plain.windowed(match, _WINDOWS))


def _as_node(found: Rule) -> Rule:
    def take(match: Match) -> Layer:
        settings = dict(found.take(match).settings)
        operation = settings.pop("operation")
        before, after = settings.pop("before"), settings.pop("after")
        assert isinstance(before, tuple)
        assert isinstance(after, tuple)
        pads = tuple(map(int, (*before, *after)))
        sizes: dict[str, Setting] = {
            "kernel_shape": settings["kernel"],
            "strides": settings["strides"],
            "pads": pads,
        }
        if operation == "max":
            return node(match, "MaxPool", settings=sizes)
        counted = int(operation == "average_with_padding")
        return node(match, "AveragePool", settings={**sizes, "count_include_pad": counted})

    return Rule(found.name, found.pattern, found.parts, take)


def _axes(match: Match) -> tuple[int, ...]:
    rank, wanted = len(shape(match, "input")), match.attrs(OUT).axis
    return tuple(range(rank)) if wanted is None else positive(integers(wanted), rank)


def _reduction(match: Match) -> Layer:
    kept = int(bool(match.attrs(OUT).keepdims))
    settings: dict[str, Setting] = {"axes": _axes(match), "keepdims": kept}
    return node(match, _REDUCTIONS[match.operator(OUT)], settings=settings)


def _sum(match: Match) -> Layer:
    """Sum; since opset 13 its axes are an input."""
    kept = int(bool(match.attrs(OUT).keepdims))
    return node(match, "ReduceSum", operands={1: _axes(match)}, settings={"keepdims": kept})
