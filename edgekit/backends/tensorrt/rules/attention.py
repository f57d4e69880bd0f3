"""Attention as one operator, as the PyTorch importer makes it; others spell it out."""

from __future__ import annotations

import math

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT
from edgekit.backends.tensorrt.rules.node import node, shape

_PARTS = ("query", "key", "value")


def rules() -> list[Rule]:
    return [_rule("attention_bias", (*_PARTS, "bias")), _rule("attention", _PARTS)]


def _rule(operator: str, names: tuple[str, ...]) -> Rule:
    parts = {name: wildcard() for name in names}
    call = is_op(f"relax.nn.{operator}")(*parts.values())
    return Rule(f"nn.{operator}", call, {**parts, OUT: call}, lambda match: _take(match, names))


def _take(match: Match, names: tuple[str, ...]) -> Layer:
    """Take tensors of batch, sequence, head, element, and a bias of batch, head, query, key."""
    attrs, query, key = match.attrs(OUT), shape(match, "query"), shape(match, "key")
    if attrs.window_size is not None:
        raise Refused("it looks through a window")
    if query[2] != key[2]:
        raise Refused("its keys have fewer heads than its queries")
    scale = 1 / math.sqrt(query[3]) if attrs.scale is None else float(attrs.scale)
    settings: dict[str, Setting] = {
        "scale": scale,
        "mask": _mask(None if attrs.causal_mask is None else str(attrs.causal_mask)),
        "queries": query[1],
        "keys": key[1],
    }
    return node(match, "attention", names, settings=settings)


def _mask(name: str | None) -> str:
    known = {None: "", "TopLeft": "top left", "BottomRight": "bottom right"}
    if name not in known:
        raise Refused(f"its mask is {name}")
    return known[name]
