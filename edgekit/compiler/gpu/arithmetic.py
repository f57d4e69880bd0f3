"""Arithmetic with one result on every GPU, in any language: what docs/verify.md says.

A maximum is NaN where an operand is, a division by zero is 0, and a float outside of an integer's
range becomes the nearest integer. passes/propagate_nan.py and passes/defined_arithmetic.py do the
same for CPUs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from edgekit.compiler.gpu.language import Language
from edgekit.compiler.passes.defined_arithmetic import is_integer, is_safe
from edgekit.compiler.passes.propagate_nan import accumulates, is_of_two_computed
from edgekit.compiler.rewriting import on_bodies

_FUNCTIONS = frozenset(
    (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign"),
        *("cos", "cosh", "erf", "erfc", "exp", "exp2", "exp10", "expm1", "fabs", "floor", "fma"),
        *("fmax", "fmin", "fmod", "hypot", "ldexp", "log", "log10", "log1p", "log2", "nextafter"),
        *("pow", "rint", "round", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    )
)
"""The functions of OpenCL's C that have one name for all types, where C has a letter for each."""


class Helpers:
    """The functions that kernels call, one of each name, in a language."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.types = language.types
        self._texts: dict[str, str] = {}

    @property
    def text(self) -> str:
        return "".join(self._texts.values())

    def call(self, name: str, dtype: str, result: str, *operands: Any) -> Any:
        """Call a function of `a`, `b` and `c` that returns the expression `result`."""
        kinds = [self.types[str(operand.ty)] for operand in operands]
        made = self.types[dtype]
        name = "_".join(("edgekit", name, made, *kinds)).replace(" ", "_")
        parameters = ", ".join(f"{kind} {word}" for kind, word in zip(kinds, "abc", strict=False))
        needed = self.language.extensions
        enabled = "".join(
            f"#pragma OPENCL EXTENSION {needed[kind]} : enable\n"
            for kind in sorted({made, *kinds} & set(needed))
        )
        head = f"{self.language.qualifiers}{made} {name}({parameters})"
        self._texts[name] = f"{enabled}{head} {{ return {result}; }}\n"
        return tirx.call_pure_extern(dtype, name, *operands)


def defined_on_gpu(helpers: Helpers) -> Any:
    """Return the pass that runs last before code generation, because TVM's simplifier takes NaN as
    equal to itself."""
    return on_bodies("DefinedOnGpu", partial(_defined, helpers))


def _defined(helpers: Helpers, body: Any) -> Any:
    body = tvm_ffi.structural_map(body, [(tirx.BufferStore, partial(_stored, helpers))])
    divided, converted, selected, bits = (
        partial(rule, helpers) for rule in (_divided, _converted, _selected, _bits)
    )
    rules = [(tirx.Div, divided), (tirx.Mod, divided), (tirx.Cast, converted)]
    return tvm_ffi.structural_map(body, [*rules, (tirx.Select, selected), (ir.Call, bits)])


def _bits(helpers: Helpers, call: Any) -> Any:
    """Take a number's bits as another type's, as bfloat16 is computed. A computed number has no
    address."""
    dtype = str(call.ty)
    if getattr(call.op, "name", "") != "tirx.reinterpret" or dtype not in helpers.types:
        return _renamed(helpers, call)
    taken = helpers.language.bits.format(made=helpers.types[dtype])
    return helpers.call("bits", dtype, taken, *call.args)


def _renamed(helpers: Helpers, call: Any) -> Any:
    if not helpers.language.one_name:
        return call
    if getattr(call.op, "name", "") != "tirx.call_pure_extern":
        return call
    name = str(call.args[0].value)
    if name[:-1] not in _FUNCTIONS or name[-1] != "f":
        return call
    return tirx.call_pure_extern(str(call.ty), name[:-1], *call.args[1:])


def _stored(helpers: Helpers, store: Any) -> Any:
    chosen = partial(_chosen, helpers)
    rules = [(tirx.Max, chosen), (tirx.Min, chosen)]
    value = store.value
    if accumulates(store) and "float" in str(value.ty):  # pooling's inner loop
        first, second = (tvm_ffi.structural_map(one, rules) for one in (value.a, value.b))
        value = type(value)(first, second)
    else:
        value = tvm_ffi.structural_map(value, rules)
    if str(value.ty).startswith("bool") and str(store.buffer.dtype).startswith("int8"):
        value = tirx.Cast("int8", value)
    return tirx.BufferStore(store.buffer, value, store.indices, store.span)


def _chosen(helpers: Helpers, node: Any) -> Any:
    dtype = str(node.ty)
    if dtype not in helpers.types:
        return node
    name, sign = ("max", ">") if isinstance(node, tirx.Max) else ("min", "<")
    if is_of_two_computed(node):
        return helpers.call(name, dtype, f"a {sign} b || a != a ? a : b", node.a, node.b)
    # A constant comes first, so that what is compared with it passes on NaN.
    return helpers.call(f"{name}_plain", dtype, f"a {sign} b ? a : b", node.a, node.b)


def _selected(helpers: Helpers, node: Any) -> Any:
    """OpenCL's own `select` has no form for operands that arithmetic made wider."""
    dtype = str(node.ty)
    if dtype not in helpers.types or str(node.condition.ty) != "bool":
        return node
    operands = (node.condition, node.true_value, node.false_value)
    return helpers.call("select", dtype, "a ? b : c", *operands)


def _divided(helpers: Helpers, node: Any) -> Any:
    dtype = str(node.ty)
    if dtype not in helpers.types or not is_integer(dtype) or is_safe(node.b):
        return node
    if isinstance(node, tirx.Mod):
        unsafe = "b == 0" if dtype.startswith("u") else "b == 0 || b == -1"
        return helpers.call("remainder", dtype, f"{unsafe} ? 0 : a % b", node.a, node.b)
    kind = helpers.types[dtype]
    opposite = f"({kind})-({helpers.types['u' + dtype.removeprefix('u')]})a"
    negated = "" if dtype.startswith("u") else f"b == -1 ? {opposite} : "
    return helpers.call("quotient", dtype, f"b == 0 ? 0 : {negated}a / b", node.a, node.b)


def _converted(helpers: Helpers, node: Any) -> Any:
    dtype, source = str(node.ty), str(node.value.ty)
    if dtype not in helpers.types or not is_integer(dtype):
        return node
    if source not in helpers.types or "float" not in source:
        return node

    def saturated(wide: str) -> str:
        language = helpers.language
        word = language.saturating[wide]
        of = "double" if source == "float64" else "float"
        return language.saturated.format(made=helpers.types[dtype], wide=word, of=of)

    result = saturated("int64" if dtype in ("int64", "uint32", "uint64") else "int32")
    if dtype == "uint64":  # a signed type converts smaller ones, so that -1 keeps its bits
        result = f"a < 0 ? {result} : {saturated('uint64')}"
    return helpers.call("integer", dtype, result, node.value)
