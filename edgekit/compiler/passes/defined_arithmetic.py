"""Integer arithmetic with one result for every operand, on every processor.

A division by zero ends a program on x86 and gives 0 on ARM; so does INT_MIN / -1. A float outside
an integer's range becomes INT_MIN on x86 and the nearest integer on ARM. In LLVM all of these are
undefined. This pass gives them the results in docs/verify.md: a division by zero and its remainder
are 0, INT_MIN / -1 is INT_MIN, a float becomes the nearest integer and NaN becomes 0. Types of 8
and 16 bits, and uint32, keep the low bits of such an integer.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from edgekit.compiler.rewriting import on_bodies

_ROUNDING = frozenset({"ceil", "floor", "nearbyint", "round", "trunc"})
_FLOAT = re.compile(r"float(16|32|64)(x\d+)?")
_INTEGER = re.compile(r"u?int(8|16|32|64)(x\d+)?")


def defined_arithmetic() -> Any:
    """Return the pass that runs last before code generation: TVM's simplifier takes NaN as equal to
    itself."""
    return on_bodies("DefinedArithmetic", defined)


def defined(body: Any) -> Any:
    return tvm_ffi.structural_map(
        body, [(tirx.Div, _divided), (tirx.Mod, _divided), (tirx.Cast, _converted)]
    )


def _divided(node: Any) -> Any:
    dtype = str(node.ty)
    if not _INTEGER.fullmatch(dtype) or _is_safe(node.b):
        return node
    first, second = (tirx.Var(name, dtype) for name in ("first", "second"))
    zero, one = (_constant(number, dtype) for number in (0, 1))
    is_zero = tirx.EQ(second, zero)
    unsafe = is_zero
    if not dtype.startswith("uint"):
        least = _constant(np.iinfo(_scalar(dtype)).min, dtype)
        by_minus_one = tirx.EQ(second, _constant(-1, dtype))
        overflows = tirx.And(by_minus_one, tirx.EQ(first, least))
        unsafe = tirx.Or(is_zero, overflows)
    result = type(node)(first, tirx.Select(unsafe, one, second))
    if isinstance(node, tirx.Div):
        result = tirx.Select(is_zero, zero, result)
    return tirx.Let(first, node.a, tirx.Let(second, node.b, result))


def _is_safe(divisor: Any) -> bool:
    inner = divisor.value if isinstance(divisor, tirx.Broadcast) else divisor
    return isinstance(inner, tirx.IntImm) and int(inner.value) not in (0, -1)


def _converted(node: Any) -> Any:
    dtype, source = str(node.ty), str(node.value.ty)
    if not _INTEGER.fullmatch(dtype) or not _FLOAT.fullmatch(source):
        return node
    lanes = dtype[len(_scalar(dtype)) :]
    if _scalar(dtype) in ("int32", "int64"):
        return _nearest(node.value, dtype)
    if _scalar(dtype) == "uint64":
        return _nearest_above(node.value, dtype)
    middle = "int64" if _scalar(dtype) == "uint32" else "int32"
    return tirx.Cast(dtype, _nearest(node.value, middle + lanes))


def _nearest(value: Any, dtype: str) -> Any:
    """Return the nearest integer, clamped to the type's range; 0 for NaN."""
    limits, source = np.iinfo(_scalar(dtype)), str(value.ty)
    low, high = _bounds(value)
    given = tirx.Var("given", source)
    result = tirx.Cast(dtype, given)
    if low < limits.min:
        below = tirx.LT(given, _constant(float(limits.min), source))
        result = tirx.Select(below, _constant(limits.min, dtype), result)
    if high >= -float(limits.min):
        above = tirx.GE(given, _constant(-float(limits.min), source))
        result = tirx.Select(above, _constant(limits.max, dtype), result)
    result = tirx.Select(tirx.EQ(given, given), result, _constant(0, dtype))
    return tirx.Let(given, value, result)


def _nearest_above(value: Any, dtype: str) -> Any:
    """Return a float as uint64: a signed type converts smaller ones, so that -1 keeps its bits."""
    source = str(value.ty)
    given = tirx.Var("given", source)
    middle, top = (_constant(2.0**power, source) for power in (63, 64))
    signed = tirx.Cast(dtype, _nearest(given, dtype[1:]))
    large = tirx.Select(
        tirx.GE(given, top),
        _constant(np.iinfo("uint64").max, dtype),
        tirx.Cast(dtype, given),
    )
    return tirx.Let(given, value, tirx.Select(tirx.GE(given, middle), large, signed))


def _bounds(value: Any) -> tuple[float, float]:
    """Return the bounds of a float, as far as its expression tells."""
    if isinstance(value, tirx.FloatImm):
        return float(value.value), float(value.value)
    if isinstance(value, tirx.Broadcast):
        return _bounds(value.value)
    if isinstance(value, tirx.Cast):
        source = _scalar(str(value.value.ty))
        if _INTEGER.fullmatch(source):
            return float(np.iinfo(source).min), float(np.iinfo(source).max)
        return _bounds(value.value)
    if isinstance(value, (tirx.Max, tirx.Min)):
        choose = max if isinstance(value, tirx.Max) else min
        first, second = _bounds(value.a), _bounds(value.b)
        return choose(first[0], second[0]), choose(first[1], second[1])
    if isinstance(value, ir.Call) and str(value.op.name).rpartition(".")[2] in _ROUNDING:
        low, high = _bounds(value.args[0])
        return low - 1, high + 1
    return -math.inf, math.inf


def _constant(number: float, dtype: str) -> Any:
    """Return a constant of a type, in every lane where the type is a vector."""
    kind = _scalar(dtype)
    lanes = dtype[len(kind) + 1 :]
    if kind.startswith("float") and abs(number) > float(np.finfo(kind).max):
        number = math.copysign(math.inf, number)
    if kind == "uint64" and number > np.iinfo("int64").max:
        value = tirx.Cast(kind, tirx.const(int(number) - 2**64, "int64"))
    else:
        value = tirx.const(number, kind)
    return tirx.Broadcast(value, int(lanes)) if lanes else value


def _scalar(dtype: str) -> str:
    return re.sub(r"x\d+$", "", dtype)
