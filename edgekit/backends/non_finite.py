"""Find what may hold NaN or infinity though the model's inputs hold neither.

Most libraries don't compute with them as the model says, and end a call that gets one. What makes
one is an operator outside its domain, such as a division by what may be 0. Overflow isn't looked
for: every product may overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from edgekit.backends.node import Node
from edgekit.base.tvm_compat import constant_array


class Sign(IntEnum):
    """What is known of every element."""

    ANY = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


def non_finite_sources(nodes: Sequence[Node], bound: Mapping[Any, Any]) -> Mapping[int, Node]:
    """Return the nodes whose floats may be NaN or infinite, each with the node that makes them."""
    signs = _Signs(bound)
    sources: dict[int, Node] = {}
    for node in nodes:
        signs.add(node)
        if "float" not in str(getattr(node.variable.ty, "dtype", "float")):
            continue  # such as a comparison
        inherited = [sources[index] for index in node.reads if index in sources]
        if inherited:
            sources[node.index] = inherited[0]
        elif node.operator in _DOMAINS and not _DOMAINS[node.operator](signs, node.value.args):
            sources[node.index] = node
    return sources


class _Signs:
    """The signs of the variables of a block, in the order of its bindings."""

    def __init__(self, bound: Mapping[Any, Any]) -> None:
        self._bound = bound
        self._known: dict[Any, Sign] = {}

    def add(self, node: Node) -> None:
        if node.operator in _SIGNS:
            self._known[node.variable] = _SIGNS[node.operator](self, node.value.args)

    def of(self, expression: Any) -> Sign:
        if expression in self._known:
            return self._known[expression]
        array = self.array(expression)
        if array is not None and array.size:
            least = array.min()
            return Sign.POSITIVE if least > 0 else Sign(int(least >= 0))
        fields = getattr(expression, "fields", ())
        return min((self.of(field) for field in fields), default=Sign.ANY)

    def array(self, expression: Any) -> Any:
        """Return the value of a constant, None for what is computed."""
        number = getattr(expression, "value", None)
        if isinstance(number, (int, float)):
            return np.asarray(number)
        while expression in self._bound:
            expression = self._bound[expression]
        return constant_array(expression)

    def is_never_zero(self, expression: Any) -> bool:
        array = self.array(expression)
        return self.of(expression) == Sign.POSITIVE if array is None else bool(np.all(array))


def _same(signs: _Signs, operands: Any) -> Sign:
    return signs.of(operands[0])


def _sum(signs: _Signs, operands: Any) -> Sign:
    found = [signs.of(operand) for operand in operands]
    return max(found) if min(found) else Sign.ANY


def _product(signs: _Signs, operands: Any) -> Sign:
    if operands[0].same_as(operands[1]):
        return max(Sign.NOT_NEGATIVE, signs.of(operands[0]))
    return min(signs.of(operand) for operand in operands)


def _power(signs: _Signs, operands: Any) -> Sign:
    base, exponent = signs.of(operands[0]), signs.array(operands[1])
    is_even = exponent is not None and bool(np.all(exponent % 2 == 0))
    return max(base, Sign.NOT_NEGATIVE) if is_even else base


def _power_is_finite(signs: _Signs, operands: Any) -> bool:
    base, exponent = signs.of(operands[0]), signs.array(operands[1])
    if base == Sign.POSITIVE or exponent is None:
        return base == Sign.POSITIVE
    is_whole = bool(np.all(exponent == np.round(exponent)))
    return bool(np.all(exponent >= 0)) and (is_whole or base == Sign.NOT_NEGATIVE)


def _divides(signs: _Signs, operands: Any) -> bool:
    return signs.is_never_zero(operands[1])


def _is_positive(signs: _Signs, operands: Any) -> bool:
    return signs.of(operands[0]) == Sign.POSITIVE


_SIGNS: Mapping[str, Callable[[_Signs, Any], Sign]] = {
    **dict.fromkeys(("reshape", "permute_dims", "broadcast_to", "expand_dims", "squeeze"), _same),
    **dict.fromkeys(("flatten", "concat", "strided_slice", "astype", "sum", "mean"), _same),
    **dict.fromkeys(("max", "min", "sqrt", "rsqrt"), _same),
    **dict.fromkeys(("multiply", "divide"), _product),
    **dict.fromkeys(("exp", "sigmoid", "nn.softmax", "nn.softplus"), lambda *_: Sign.POSITIVE),
    **dict.fromkeys(("abs", "square", "nn.relu", "variance", "std"), lambda *_: Sign.NOT_NEGATIVE),
    "add": _sum,
    "maximum": lambda signs, operands: max(signs.of(operand) for operand in operands),
    "minimum": lambda signs, operands: min(signs.of(operand) for operand in operands),
    "where": lambda signs, operands: min(signs.of(operand) for operand in operands[1:]),
    "clip": lambda signs, operands: max(signs.of(operands[0]), signs.of(operands[1])),
    "full": lambda signs, operands: signs.of(operands[1]),
    "power": _power,
}
"""The signs of results, by operator; any sign for all others."""

_DOMAINS: Mapping[str, Callable[[_Signs, Any], bool]] = {
    **dict.fromkeys(("divide", "floor_divide", "mod", "floor_mod"), _divides),
    **dict.fromkeys(("log", "rsqrt"), _is_positive),
    **dict.fromkeys(("asin", "acos", "acosh", "atanh"), lambda *_: False),
    "sqrt": lambda signs, operands: signs.of(operands[0]) != Sign.ANY,
    "power": _power_is_finite,
}
"""Whether the results are finite, by operators that have a domain."""
