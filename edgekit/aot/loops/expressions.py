"""Convert TVM expressions to C: the same value for every input, with as few brackets as C needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx

from edgekit.aot.c_text import C_TYPES, float_text, integer_text
from edgekit.aot.loops.helpers import INTEGERS, SIGNED, WRAPPING
from edgekit.compiler.passes.propagate_nan import is_of_two_computed
from edgekit.compiler.rewriting import nodes_in


class NotInCError(Exception):
    """An expression or statement that cannot be written in C, with the reason for a report."""


_ATOM, _UNARY, _PRODUCT, _SUM, _SHIFT, _ORDER, _EQUAL, _BITS, _AND, _OR, _CHOICE = range(11)

_OPERANDS = {
    _PRODUCT: (_PRODUCT, _UNARY),
    _SUM: (_SUM, _PRODUCT),
    _SHIFT: (_UNARY, _UNARY),
    _ORDER: (_SUM, _SUM),
    _EQUAL: (_SUM, _SUM),
    _BITS: (_UNARY, _UNARY),
    _AND: (_AND, _EQUAL),
    _OR: (_EQUAL, _EQUAL),
}
"""The loosest binding allowed for the operands of each operator: no order of additions changes, and
brackets stand where C's precedence is easily forgotten."""

_BINARY: Mapping[type, tuple[str, int]] = {
    tirx.Add: ("+", _SUM),
    tirx.Sub: ("-", _SUM),
    tirx.Mul: ("*", _PRODUCT),
    tirx.Div: ("/", _PRODUCT),
    tirx.Mod: ("%", _PRODUCT),
    tirx.LT: ("<", _ORDER),
    tirx.LE: ("<=", _ORDER),
    tirx.GT: (">", _ORDER),
    tirx.GE: (">=", _ORDER),
    tirx.EQ: ("==", _EQUAL),
    tirx.NE: ("!=", _EQUAL),
    tirx.And: ("&&", _AND),
    tirx.Or: ("||", _OR),
    tirx.LShift: ("<<", _SHIFT),
    tirx.RShift: (">>", _SHIFT),
    tirx.BitwiseAnd: ("&", _BITS),
    tirx.BitwiseOr: ("|", _BITS),
    tirx.BitwiseXor: ("^", _BITS),
}
_BITWISE = {
    "shift_left": ("<<", _SHIFT),
    "shift_right": (">>", _SHIFT),
    "bitwise_and": ("&", _BITS),
    "bitwise_or": ("|", _BITS),
    "bitwise_xor": ("^", _BITS),
}
FUNCTIONS = frozenset(
    (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos"),
        *("cosh", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "hypot", "j0"),
        *("j1", "lgamma", "log", "log10", "log1p", "log2", "nearbyint", "nextafter", "pow", "sin"),
        *("sinh", "sqrt", "tan", "tanh", "trunc", "y0", "y1"),
    )
)
"""Functions of <math.h>."""
_WRAPPING = {"+": "add", "-": "sub", "*": "mul"}
_ROUNDED_HALF_TO_EVEN = {"round": "nearbyint"}
_SHORT = frozenset(("int8", "int16", "uint8", "uint16"))
"""Types that C computes as int, whatever they are stored in."""

_OFFSET = "elem_offset"
"""The place where a tensor begins in its memory, as TVM calls it: in a program, at the start."""


class Expressions:
    """Prints expressions; the surrounding statements set the names of variables and buffers."""

    def __init__(self, load: Callable[[Any], str]) -> None:
        self._load = load
        self.names: dict[Any, str] = {}
        """The names of loop variables and other variables."""
        self.replaced: dict[str, str] = {}
        """Loads that were replaced by a variable, by their text."""
        self.helpers: set[str] = set()
        self.uses_math = False
        self.is_index = False
        """Whether the printed expression is an index, which cannot overflow."""

    def text(self, expression: Any, limit: int = _CHOICE) -> str:
        """Return the expression, in brackets where it binds less tightly than its place allows."""
        text, strength = self._print(expression)
        return f"({text})" if strength > limit else text

    def condition(self, expression: Any) -> str:
        """Return one of several conditions that are joined by &&."""
        return self.text(expression, _EQUAL)

    def load(self, expression: Any) -> str:
        text = self._load(expression)
        return self.replaced.get(text, text)

    def _print(self, e: Any) -> tuple[str, int]:
        if isinstance(e, tirx.IntImm):
            return self._integer(int(e.value), str(e.ty.dtype))
        if isinstance(e, tirx.FloatImm):
            text = self._float(float(e.value), str(e.ty.dtype))
            return text, _UNARY if text.startswith(("-", "(")) else _ATOM
        if isinstance(e, ir.TensorLoad):
            return self.load(e), _ATOM
        if isinstance(e, ir.Var):
            if e not in self.names and e.name == _OFFSET:
                return "0", _ATOM
            if e not in self.names:
                raise NotInCError(f"{e.name} is known only at run time")
            return self.names[e], _ATOM
        if isinstance(e, tirx.Cast):
            return self._cast(e)
        if isinstance(e, (tirx.Max, tirx.Min)):
            return self._extreme(e)
        if isinstance(e, tirx.Select):
            return self._choice(e.condition, e.true_value, e.false_value)
        if isinstance(e, tirx.BitwiseNot):
            return f"({C_TYPES[_known(_dtype(e))]})~{self.text(e.a, _UNARY)}", _UNARY
        if isinstance(e, tirx.Not):
            return f"!{self.text(e.a, _ATOM)}", _UNARY
        if type(e) in _BINARY:
            return self._binary(*_BINARY[type(e)], e.a, e.b, _dtype(e))
        if isinstance(e, tirx.Let):
            self.names[e.var] = self.text(e.value, _ATOM)
            return self._print(e.body)
        if isinstance(e, ir.Call):
            return self._call(e)
        raise NotInCError(f"TVM's {type(e).__name__} has no C")

    def _integer(self, value: int, dtype: str) -> tuple[str, int]:
        text = integer_text(value, _known(dtype))
        return text, _UNARY if text.startswith("-") else _ATOM

    def _float(self, value: float, dtype: str) -> str:
        text = float_text(value, _known(dtype))
        self.uses_math |= "INFINITY" in text or "NAN" in text
        return text

    def _binary(self, sign: str, strength: int, a: Any, b: Any, dtype: str) -> tuple[str, int]:
        if sign == "%" and dtype.startswith("float"):
            return self._function("fmod", dtype, (a, b)), _ATOM
        helper = self._helper_for(sign, a, b, dtype)
        if helper is not None:
            return self.helped(helper, a, b), _ATOM
        limits = _OPERANDS[strength]
        left, right = self.text(a, limits[0]), self.text(b, limits[1])
        text = f"{left} {sign} {right}"
        if dtype == "uint16" and sign == "*":
            text = f"(uint32_t){self.text(a, _UNARY)} * {self.text(b, _UNARY)}"
        if dtype in _SHORT:
            return f"({C_TYPES[dtype]})({text})", _UNARY
        return text, strength

    def _cast(self, e: Any) -> tuple[str, int]:
        dtype, source = _dtype(e), _dtype(e.value)
        if dtype == "bool":
            zero = "0" if not source.startswith("float") else self._float(0.0, source)
            return f"{self.text(e.value, _PRODUCT)} != {zero}", _EQUAL
        if dtype in INTEGERS and source.startswith("float"):
            return self.helped(f"ek_{dtype}_of_{_known(source)}", e.value), _ATOM
        return f"({C_TYPES[_known(dtype)]}){self.text(e.value, _UNARY)}", _UNARY

    def _extreme(self, e: Any, accumulates: bool = False) -> tuple[str, int]:
        name = "max" if isinstance(e, tirx.Max) else "min"
        if is_of_two_computed(e) and not accumulates:
            name += "imum"
        return self.helped(f"ek_{name}_{_known(_dtype(e))}", e.a, e.b), _ATOM

    def accumulated(self, e: Any) -> str:
        """Return a maximum or minimum of the old value and a new one, in the cheapest form."""
        return self._extreme(e, accumulates=True)[0]

    def helped(self, name: str, *operands: Any) -> str:
        """Return a call of a function of helpers.py."""
        self.helpers.add(name)
        return f"{name}({', '.join(self.text(operand) for operand in operands)})"

    def _helper_for(self, sign: str, a: Any, b: Any, dtype: str) -> str | None:
        """Return the function for an operator that C leaves undefined for some operands."""
        if self.is_index or dtype not in INTEGERS:
            return None
        if sign in "/%" and not (isinstance(b, tirx.IntImm) and int(b.value) not in (0, -1)):
            return f"ek_{'div' if sign == '/' else 'mod'}_{dtype}"
        if sign == "<<" and dtype in SIGNED:
            return f"ek_shift_left_{dtype}"
        if sign in _WRAPPING and dtype in WRAPPING and may_overflow(sign, a, b, dtype):
            return f"ek_{_WRAPPING[sign]}_{dtype}"
        return None

    def _choice(self, condition: Any, yes: Any, no: Any) -> tuple[str, int]:
        short = _dtype(yes) in _SHORT
        words = (self.text(condition, _OR), self.text(yes, _SUM), self.text(no, _SUM))
        text = f"{words[0]} ? {words[1]} : {words[2]}"
        return (f"({C_TYPES[_dtype(yes)]})({text})", _UNARY) if short else (text, _CHOICE)

    def _call(self, e: Any) -> tuple[str, int]:
        name, dtype = str(getattr(e.op, "name", e.op)).rpartition(".")[2], _dtype(e)
        arguments = list(e.args)
        if name == "if_then_else":
            return self._choice(arguments[0], arguments[1], arguments[2])
        if name in _BITWISE:
            return self._binary(*_BITWISE[name], arguments[0], arguments[1], dtype)
        if name == "bitwise_not":
            return f"({C_TYPES[_known(dtype)]})~{self.text(arguments[0], _UNARY)}", _UNARY
        if name == "likely":
            return self._print(arguments[0])
        if name == "isnan":
            self.uses_math = True
            return f"isnan({self.text(arguments[0])}) != 0", _EQUAL
        if name in ("call_pure_extern", "call_extern"):
            name, arguments = str(arguments[0].value), arguments[1:]
            name = name[:-1] if name.endswith("f") and dtype == "float32" else name
        name = _ROUNDED_HALF_TO_EVEN.get(name, name)
        if name == "abs" and dtype.startswith("int"):
            value = self.text(arguments[0], _UNARY)
            minus = f"-{value}"
            if dtype in WRAPPING:
                minus = self.helped(f"ek_sub_{dtype}", tirx.const(0, dtype), arguments[0])
            return f"{value} < 0 ? {minus} : {value}", _CHOICE
        if name not in FUNCTIONS or not dtype.startswith("float"):
            raise NotInCError(f"the function {name} of {dtype} has no C")
        return self._function(name, dtype, tuple(arguments)), _ATOM

    def _function(self, name: str, dtype: str, arguments: tuple[Any, ...]) -> str:
        self.uses_math = True
        called = name + ("f" if _known(dtype) == "float32" else "")
        return f"{called}({', '.join(self.text(argument) for argument in arguments)})"


def may_overflow(sign: str, a: Any, b: Any, dtype: str) -> bool:
    """Return whether a sum, difference or product of loaded numbers may leave their type."""
    if not (nodes_in(a, ir.TensorLoad) or nodes_in(b, ir.TensorLoad)):
        return False
    first, second = _range(a), _range(b)
    if sign == "*":
        ends = [x * y for x in first for y in second]
    elif sign == "+":
        ends = [first[0] + second[0], first[1] + second[1]]
    else:
        ends = [first[0] - second[1], first[1] - second[0]]
    limits = np.iinfo(dtype)
    return min(ends) < limits.min or max(ends) > limits.max


def _range(e: Any) -> tuple[int, int]:
    """Return the bounds of a whole-number expression, as far as it tells."""
    if isinstance(e, tirx.IntImm):
        return int(e.value), int(e.value)
    if isinstance(e, tirx.Cast) and _dtype(e.value) in INTEGERS:
        return _range(e.value)
    dtype = _dtype(e)
    limits = np.iinfo(dtype if dtype in INTEGERS else "int64")
    whole = int(limits.min), int(limits.max)
    if isinstance(e, (tirx.Add, tirx.Sub, tirx.Mul)):
        (a, b), (c, d) = _range(e.a), _range(e.b)
        if isinstance(e, tirx.Mul):
            ends = [x * y for x in (a, b) for y in (c, d)]
        else:
            ends = [a + c, b + d] if isinstance(e, tirx.Add) else [a - d, b - c]
        fits = whole[0] <= min(ends) and max(ends) <= whole[1]
        return (min(ends), max(ends)) if fits else whole
    return whole


def _dtype(e: Any) -> str:
    return str(getattr(e.ty, "dtype", e.ty))


def _known(dtype: str) -> str:
    if dtype not in C_TYPES:
        raise NotInCError(f"{dtype} has no C")
    return dtype
