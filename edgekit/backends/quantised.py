"""Find the floats that no library may round: those made from integers or about to become some.

A quantised model consists of dequantize, float operator, quantize (or casts in their place). TVM
computes it exactly to the last step. A library that adds in another order, or rounds elsewhere,
would be off by one; so would one that divides by a reciprocal, as vector code does, before a
quotient is rounded to a whole number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.backends.node import Node
from edgekit.base.tvm_compat import constant_array

QUANTIZE, DEQUANTIZE = "quantize", "dequantize"
REASON = (
    "it is part of quantised arithmetic, where a float library's rounding would change what is "
    "stored"
)
BECOMES_WHOLE = (
    "its quotients are rounded to whole numbers, and a library's may be a last place off"
)
_STORED = ("int8", "uint8", "int16")
_WHOLE = ("round", "floor", "ceil", QUANTIZE)
_HANDS_ON = frozenset(
    {"add", "subtract", "multiply", "clip", "maximum", "minimum", "negative", "reshape"}
)


def kept_exact(nodes: Sequence[Node], bound: Mapping[Any, Any]) -> Mapping[int, str]:
    """Return the nodes of a block that compute such floats, each with the reason."""
    return {
        **dict.fromkeys(_divided_to_whole_numbers(nodes), BECOMES_WHOLE),
        **dict.fromkeys(between_quantisations(nodes, bound), REASON),
    }


def _divided_to_whole_numbers(nodes: Sequence[Node]) -> frozenset[int]:
    rounded: set[int] = set()
    for node in reversed(nodes):
        if _makes_whole(node) or (node.index in rounded and node.operator in _HANDS_ON):
            rounded.update(node.reads)
    return frozenset(index for index in rounded if nodes[index].operator == "divide")


def _makes_whole(node: Node) -> bool:
    if node.operator == "astype":
        return "int" in str(node.variable.ty.dtype)
    return node.operator in _WHOLE


def between_quantisations(nodes: Sequence[Node], bound: Mapping[Any, Any]) -> frozenset[int]:
    """Return the nodes of a block that compute floats between stored integers."""
    if not any(node.operator == QUANTIZE for node in nodes):
        return frozenset()  # its casts belong to a model that takes or returns images
    loads = {node.index for node in nodes if _loads(node, bound)}
    stores = {node.index for node in nodes if _stores(node)}
    ends = loads | stores | {node.index for node in nodes if node.operator == DEQUANTIZE}
    after: set[int] = set()
    for node in nodes:
        if node.index not in ends and not (after | loads).isdisjoint(node.reads):
            after.add(node.index)
    before: set[int] = set()
    for node in reversed(nodes):
        if node.index in stores or node.index in before:
            before.update(set(node.reads) - ends)
    return frozenset(after & before)


def _loads(node: Node, bound: Mapping[Any, Any]) -> bool:
    if node.operator == "astype":
        return str(node.value.args[0].ty.dtype) in _STORED
    return node.operator == DEQUANTIZE and not _is_constant(node.value.args[0], bound)


def _stores(node: Node) -> bool:
    if node.operator == "astype":
        return str(node.variable.ty.dtype) in _STORED
    return node.operator == QUANTIZE


def _is_constant(stored: Any, bound: Mapping[Any, Any]) -> bool:
    """Tell whether a node only dequantises weights, which float models do too."""
    while stored in bound:
        stored = bound[stored]
    return constant_array(stored) is not None
