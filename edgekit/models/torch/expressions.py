"""Check the shape expressions for torch: short sums, products and comparisons of dimensions.

Torch passes them to `sympy.sympify`, which evaluates Python and multiplies numbers out. So this
module parses an expression as Python's syntax, allows only listed words and operators, and bounds
its size before SymPy sees it.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

_LONGEST = 2000
_DEEPEST = 40
_MOST_DIGITS = 20
_LARGEST_EXPONENT = 99
_MOST_BITS = 2048
_MOST_TERMS = 256

_CHARACTERS = re.compile(r"[A-Za-z0-9_'. +\-*/%(),=<>!&|]*", re.ASCII)
_SYMBOL = re.compile(r"[a-z]{1,2}\d{1,6}", re.ASCII)
_REAL = re.compile(r"-?\d{1,20}(\.\d{1,20})?(e[+-]?\d{1,2})?", re.ASCII)
_ASSUMPTIONS = frozenset({"integer", "positive", "nonnegative", "negative", "nonzero", "real"})
_CONSTANTS = frozenset({"True", "False", "true", "false"})

_PRODUCTS = frozenset({"Mul"})
_FUNCTIONS = frozenset(
    {
        *("Add", "Max", "Min", "And", "Or", "Not"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality"),
        *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
        *("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt", "ToFloat"),
    }
)
"""Functions whose value is no longer than their longest argument or the sum of all."""
_DIVISIONS = frozenset(
    {
        *("Rational", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilDiv", "ModularIndexing"),
        *("IntTrueDiv", "FloatTrueDiv"),
    }
)
_PRODUCT_OPERATORS = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_SUM_OPERATORS = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True)
class _Size:
    """An upper bound on the size of a part."""

    bits: int
    terms: int
    """The number of terms when products and powers are multiplied out."""
    has_power: bool = False


_NUMBER_OF_A_SYMBOL = _Size(bits=64, terms=1)
_REAL_NUMBER = _Size(bits=400, terms=1)


def check_expression(text: str) -> None:
    """Raise ValueError if this is no shape expression, or would take long to evaluate."""
    if len(text) > _LONGEST or _CHARACTERS.fullmatch(text) is None:
        raise ValueError("it is too long, or has other characters in it")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("it is not an expression") from error
    _size(tree, 0)


def _size(node: ast.expr, depth: int) -> _Size:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    found = _size_of_kind(node, depth + 1)
    if found.bits > _MOST_BITS or found.terms > _MOST_TERMS:
        raise ValueError("it grows too large")
    return found


def _size_of_kind(node: ast.expr, depth: int) -> _Size:
    if isinstance(node, ast.Constant):
        return _number(node)
    if isinstance(node, ast.Name) and (node.id in _CONSTANTS or _SYMBOL.fullmatch(node.id)):
        return _NUMBER_OF_A_SYMBOL
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _size(node.operand, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(node.left, node.right, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, _PRODUCT_OPERATORS):
        return _product([_size(node.left, depth), _size(node.right, depth)])
    if isinstance(node, ast.BinOp) and isinstance(node.op, _SUM_OPERATORS):
        return _sum([_size(node.left, depth), _size(node.right, depth)])
    if (
        isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and isinstance(node.ops[0], _COMPARISONS)
    ):
        return _sum([_size(node.left, depth), _size(node.comparators[0], depth)])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, node, depth)
    raise ValueError(f"{type(node).__name__} has no place in it")


def _call(name: str, call: ast.Call, depth: int) -> _Size:
    if name in ("Symbol", "Float"):
        _check_named(name, call)
        return _NUMBER_OF_A_SYMBOL if name == "Symbol" else _REAL_NUMBER
    if call.keywords or not call.args:
        raise ValueError(f"{name} is not called so")
    if name == "Integer" and len(call.args) == 1:
        return _Size(_integer(call.args[0]).bit_length(), 1)
    if name == "Pow" and len(call.args) == 2:
        return _power(call.args[0], call.args[1], depth)
    sizes = [_size(argument, depth) for argument in call.args]
    if name in _PRODUCTS or (name in _DIVISIONS and len(sizes) <= 3):
        return _product(sizes)
    if name in _FUNCTIONS:
        return _sum(sizes)
    raise ValueError(f"{name} has no place in it")


def _check_named(name: str, call: ast.Call) -> None:
    first = call.args[0] if len(call.args) == 1 else None
    text = first.value if isinstance(first, ast.Constant) else None
    form, options = (_SYMBOL, _ASSUMPTIONS) if name == "Symbol" else (_REAL, {"precision"})
    plain = all(
        keyword.arg in options
        and isinstance(keyword.value, ast.Constant)
        and (keyword.value.value == 53 if name == "Float" else keyword.value.value is True)
        for keyword in call.keywords
    )
    if not isinstance(text, str) or not form.fullmatch(text) or not plain:
        raise ValueError(f"{name} is not called so")


def _number(node: ast.Constant) -> _Size:
    if isinstance(node.value, bool):
        return _NUMBER_OF_A_SYMBOL
    return _Size(_integer(node).bit_length(), 1)


def _power(base: ast.expr, exponent: ast.expr, depth: int) -> _Size:
    if isinstance(exponent, ast.Call) and ast.unparse(exponent.func) == "Integer":
        (exponent,) = exponent.args
    times = abs(_integer(exponent))
    of_base = _size(base, depth)
    if times > _LARGEST_EXPONENT or of_base.has_power:
        raise ValueError("its powers are too large")
    terms = math.comb(of_base.terms + times - 1, times)
    return _Size(of_base.bits * max(times, 1), terms, has_power=True)


def _integer(node: ast.expr) -> int:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    value = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(value, int) or isinstance(value, bool) or value >= 10**_MOST_DIGITS:
        raise ValueError("one of its numbers is no integer, or has too many digits")
    return sign * value


def _sum(sizes: list[_Size]) -> _Size:
    return _Size(
        max(size.bits for size in sizes) + len(sizes),
        sum(size.terms for size in sizes),
        any(size.has_power for size in sizes),
    )


def _product(sizes: list[_Size]) -> _Size:
    return _Size(
        sum(size.bits for size in sizes),
        math.prod(size.terms for size in sizes),
        any(size.has_power for size in sizes),
    )
