"""Make a maximum or minimum of two computed floats NaN where either is.

onnxruntime, PyTorch and ONNX define it so. TVM uses a comparison and a selection, which gives the
second operand where the first is NaN. The running maximum of a reduction is unchanged: it is
pooling's inner loop. Where one operand is a constant, loop_nests.py has put it first.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from edgekit.compiler.llvm_functions import (
    Functions,
    like,
    llvm_type,
    on_bodies_with_functions,
)

_FLOAT = re.compile(r"float(16|32|64)(x\d+)?")


def propagate_nan() -> Any:
    """Return the pass that runs last before code generation: TVM's simplifier takes NaN as equal to
    itself."""
    return on_bodies_with_functions("PropagateNan", _in_stores)


def accumulates(store: Any) -> bool:
    """Return whether a store keeps the larger or smaller of the old value and a new one."""
    value = store.value
    return isinstance(value, (tirx.Max, tirx.Min)) and any(
        isinstance(operand, ir.TensorLoad)
        and operand.source.same_as(store.buffer)
        and bool(tvm_ffi.structural_equal(operand.indices, store.indices))
        for operand in (value.a, value.b)
    )


def is_of_two_computed(node: Any) -> bool:
    return bool(_FLOAT.fullmatch(str(node.ty))) and not any(
        _is_constant(operand) for operand in (node.a, node.b)
    )


def _in_stores(body: Any, functions: Functions) -> Any:
    return tvm_ffi.structural_map(body, [(tirx.BufferStore, partial(_stored, functions))])


def _stored(functions: Functions, store: Any) -> Any:
    value = store.value
    if accumulates(store):
        value = type(value)(_propagating(functions, value.a), _propagating(functions, value.b))
    else:
        value = _propagating(functions, value)
    # TVM stores booleans as bytes; its constructor of a store refuses that.
    if str(value.ty).startswith("bool") and str(store.buffer.dtype).startswith("int8"):
        value = tirx.Cast(str(value.ty).replace("bool", "int8", 1), value)
    return tirx.BufferStore(store.buffer, value, store.indices, store.span)


def _propagating(functions: Functions, value: Any) -> Any:
    chosen = partial(_chosen, functions)
    return tvm_ffi.structural_map(value, [(tirx.Max, chosen), (tirx.Min, chosen)])


def _chosen(functions: Functions, node: Any) -> Any:
    if not is_of_two_computed(node):
        return node
    dtype = str(node.ty)
    kind, choice = llvm_type(dtype), llvm_type(like(dtype, "bool"))
    name, better = ("maximum", "ogt") if isinstance(node, tirx.Max) else ("minimum", "olt")
    lines = [
        f"%better = fcmp {better} {kind} %0, %1",
        f"%none = fcmp uno {kind} %0, %0",
        f"%first = or {choice} %better, %none",
        f"%result = select {choice} %first, {kind} %0, {kind} %1",
        f"ret {kind} %result",
    ]
    return functions.call(name, dtype, lines, node.a, node.b)


def _is_constant(value: Any) -> bool:
    inner = value.value if isinstance(value, tirx.Broadcast) else value
    return isinstance(inner, tirx.FloatImm)
