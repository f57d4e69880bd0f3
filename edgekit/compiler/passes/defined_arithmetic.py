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
from functools import partial
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from edgekit.compiler.llvm_functions import (
    Functions,
    constant,
    like,
    llvm_type,
    on_bodies_with_functions,
    scalar,
)
from edgekit.compiler.rewriting import nodes_in, on_kernels

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_FUSES_WHAT_FOLLOWS, _OPAQUE = 4, 8
"""TVM's numbers for how a kernel is fused."""
_ROUNDING = frozenset({"ceil", "floor", "nearbyint", "round", "trunc"})
_FLOAT = re.compile(r"float(16|32|64)(x\d+)?")
_INTEGER = re.compile(r"u?int(8|16|32|64)(x\d+)?")


def defined_arithmetic() -> Any:
    """Return the pass that runs last before code generation: TVM's simplifier takes NaN as equal to
    itself."""
    return on_bodies_with_functions("DefinedArithmetic", _defined)


def one_division_a_kernel() -> Any:
    """Return the pass that fuses no integer division with what is before it.

    TVM's simplifier takes several times as long for each division inside of another one.
    """
    return on_kernels("OneDivisionAKernel", _beginning_a_kernel)


def _beginning_a_kernel(kernel: Any) -> Any:
    found = nodes_in(kernel.body, _DIVISIONS)
    if all(is_safe(node.b) or not _INTEGER.fullmatch(str(node.ty)) for node in found):
        return kernel
    pattern = int((kernel.attrs or {}).get("op_pattern", _OPAQUE))
    return kernel.with_attr("op_pattern", max(pattern, _FUSES_WHAT_FOLLOWS))


def _defined(body: Any, functions: Functions) -> Any:
    divided, converted = (partial(rule, functions) for rule in (_divided, _converted))
    return tvm_ffi.structural_map(
        body, [(tirx.Div, divided), (tirx.Mod, divided), (tirx.Cast, converted)]
    )


def _divided(functions: Functions, node: Any) -> Any:
    dtype = str(node.ty)
    if not _INTEGER.fullmatch(dtype) or is_safe(node.b):
        return node
    name = "quotient" if isinstance(node, tirx.Div) else "remainder"
    return functions.call(name, dtype, _division(name, dtype), node.a, node.b)


def _division(name: str, dtype: str) -> list[str]:
    kind, choice = llvm_type(dtype), llvm_type(like(dtype, "bool"))
    zero, one = (constant(number, dtype) for number in (0, 1))
    is_signed = not dtype.startswith("uint")
    lines = [f"%zero = icmp eq {kind} %1, {zero}"]
    if is_signed:
        least = constant(np.iinfo(scalar(dtype)).min, dtype)
        lines += [
            f"%negates = icmp eq {kind} %1, {constant(-1, dtype)}",
            f"%least = icmp eq {kind} %0, {least}",
            f"%overflows = and {choice} %negates, %least",
            f"%unsafe = or {choice} %zero, %overflows",
        ]
    unsafe = "%unsafe" if is_signed else "%zero"
    operation = ("s" if is_signed else "u") + ("div" if name == "quotient" else "rem")
    lines += [
        f"%divisor = select {choice} {unsafe}, {kind} {one}, {kind} %1",
        f"%result = {operation} {kind} %0, %divisor",
    ]
    if name == "quotient":
        lines.append(f"%guarded = select {choice} %zero, {kind} {zero}, {kind} %result")
        return [*lines, f"ret {kind} %guarded"]
    return [*lines, f"ret {kind} %result"]


def is_integer(dtype: str) -> bool:
    return _INTEGER.fullmatch(dtype) is not None


def is_safe(divisor: Any) -> bool:
    inner = divisor.value if isinstance(divisor, tirx.Broadcast) else divisor
    return isinstance(inner, tirx.IntImm) and int(inner.value) not in (0, -1)


def _converted(functions: Functions, node: Any) -> Any:
    dtype, source = str(node.ty), str(node.value.ty)
    if not _INTEGER.fullmatch(dtype) or not _FLOAT.fullmatch(source):
        return node
    low, high = _bounds(node.value)
    limits = np.iinfo(scalar(_middle(dtype)))
    is_wide = scalar(dtype) == "uint64"
    below, above = is_wide or low < limits.min, is_wide or high >= -float(limits.min)
    name = "_".join((dtype, *["below"] * below, *["above"] * above))
    return functions.call(name, dtype, _nearest(dtype, source, below, above), node.value)


def _middle(dtype: str) -> str:
    """Return the signed type through which a float becomes an integer of a type."""
    is_wide = scalar(dtype) in ("int64", "uint32", "uint64")
    return like(dtype, "int64" if is_wide else "int32")


def _nearest(dtype: str, source: str, below: bool, above: bool) -> list[str]:
    """Return the nearest integer, 0 for NaN. It is clamped to the type's range on the sides where
    the float may be outside."""
    middle, choice = _middle(dtype), llvm_type(like(dtype, "bool"))
    kind, given, result = llvm_type(middle), llvm_type(source), llvm_type(dtype)
    limits = np.iinfo(scalar(middle))
    lines = [f"%whole = fptosi {given} %0 to {kind}"]
    last = "%whole"
    if below:
        lines += [
            f"%is_below = fcmp olt {given} %0, {constant(float(limits.min), source)}",
            f"%least = select {choice} %is_below, "
            f"{kind} {constant(limits.min, middle)}, {kind} {last}",
        ]
        last = "%least"
    if above:
        lines += [
            f"%is_above = fcmp oge {given} %0, {constant(-float(limits.min), source)}",
            f"%most = select {choice} %is_above, "
            f"{kind} {constant(limits.max, middle)}, {kind} {last}",
        ]
        last = "%most"
    lines += [
        f"%is_number = fcmp ord {given} %0, %0",
        f"%number = select {choice} %is_number, {kind} {last}, {kind} {constant(0, middle)}",
    ]
    if scalar(dtype) == "uint64":  # a signed type converts smaller ones, so that -1 keeps its bits
        return [*lines, *_above_signed(choice, kind, given, dtype, source)]
    if kind == result:
        return [*lines, f"ret {kind} %number"]
    return [*lines, f"%low = trunc {kind} %number to {result}", f"ret {result} %low"]


def _above_signed(choice: str, kind: str, given: str, dtype: str, source: str) -> list[str]:
    middle, top = (constant(2.0**power, source) for power in (63, 64))
    return [
        f"%unsigned = fptoui {given} %0 to {kind}",
        f"%is_top = fcmp oge {given} %0, {top}",
        f"%clamped = select {choice} %is_top, {kind} {constant(-1, dtype)}, {kind} %unsigned",
        f"%is_large = fcmp oge {given} %0, {middle}",
        f"%result = select {choice} %is_large, {kind} %clamped, {kind} %number",
        f"ret {kind} %result",
    ]


def _bounds(value: Any) -> tuple[float, float]:
    """Return the bounds of a float, as far as its expression tells."""
    if isinstance(value, tirx.FloatImm):
        return float(value.value), float(value.value)
    if isinstance(value, tirx.Broadcast):
        return _bounds(value.value)
    if isinstance(value, tirx.Cast):
        source = scalar(str(value.value.ty))
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
