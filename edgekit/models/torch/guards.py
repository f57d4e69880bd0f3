"""Read the guards of a saved program: conditions on its inputs' dimensions, in Python syntax.

Torch would run them as code. This module parses them as comparisons of whole numbers and
dimensions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_LONGEST = 2000
_LARGEST = 1 << 64
_ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
Dimensions = Callable[[str, int], int]
"""A function from an input's name and an axis to the extent."""


def check_guard(text: str) -> None:
    """Raise ValueError if a guard is not a comparison of dimensions."""
    holds(text, lambda name, axis: 1)


def holds(text: str, dimensions: Dimensions) -> bool:
    """Tell whether the inputs satisfy the guard; ValueError if it cannot be read."""
    if len(text) > _LONGEST:
        raise ValueError("it is too long")
    try:
        tree = ast.parse(text, mode="eval").body
        return bool(_truth(tree, dimensions))
    except (SyntaxError, RecursionError, MemoryError, ZeroDivisionError) as error:
        raise ValueError("it is no comparison of dimensions") from error


def _truth(node: ast.expr, dimensions: Dimensions) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = [_truth(value, dimensions) for value in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _truth(node.operand, dimensions)
    if isinstance(node, ast.Compare):
        values = [_number(each, dimensions) for each in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        if all(type(each) in _COMPARISONS for each in node.ops):
            return all(_COMPARISONS[type(sign)](a, b) for sign, a, b in pairs)
    raise ValueError("it is no comparison of dimensions")


def _number(node: ast.expr, dimensions: Dimensions) -> int:
    found = _arithmetic(node, dimensions)
    if abs(found) > _LARGEST:
        raise ValueError("its numbers grow too large")
    return found


def _arithmetic(node: ast.expr, dimensions: Dimensions) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, dimensions)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        sides = (_number(side, dimensions) for side in (node.left, node.right))
        return _ARITHMETIC[type(node.op)](*sides)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
        return dimensions(_sized(node.value), _index(node))
    raise ValueError("it is no arithmetic of dimensions")


def _sized(call: ast.Call) -> str:
    """Return the name of the input in an expression such as `L['x'][0].size()`."""
    function = call.func
    if call.args or call.keywords or not isinstance(function, ast.Attribute):
        raise ValueError("it calls something")
    path: list[str] = []
    node: Any = function.value
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        path.insert(0, str(node.slice.value))
        node = node.value
    if function.attr != "size" or not (isinstance(node, ast.Name) and node.id == "L" and path):
        raise ValueError("it asks for more than sizes")
    return "_".join(path)


def _index(node: ast.Subscript) -> int:
    if not isinstance(node.slice, ast.Constant) or type(node.slice.value) is not int:
        raise ValueError("it asks for no axis")
    return node.slice.value
