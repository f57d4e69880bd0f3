"""TVM's lowering of loop nests, followed by the passes that it lacks."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.tirx import compilation_pipeline

from edgekit.compiler.passes.defined_arithmetic import defined_arithmetic
from edgekit.compiler.passes.exact_differences import exact_differences
from edgekit.compiler.passes.propagate_nan import propagate_nan
from edgekit.compiler.passes.vector_math import vector_math
from edgekit.compiler.passes.whole_vectors import whole_vectors
from edgekit.compiler.rewriting import on_bodies, on_kernels
from edgekit.profiles.architecture import architecture

_NAME = "edgekit"


def executable_of(module: Any, target: Any) -> Any:
    """Build the executable from scheduled kernels and the calls of them."""
    return relax.build(module, target, relax_pipeline=None, tir_pipeline=lowering())


def lowering() -> str:
    """Register the lowering and return its name: TVM takes a pipeline only by name."""
    compilation_pipeline.register_tir_pipeline(_NAME, _pipeline)
    return _NAME


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("s_tir")

    def begin(module: Any) -> Any:
        return lower(whole_vectors()(exact_differences()(module)))

    def finish() -> Any:
        return tvm.ir.transform.Sequential(
            [
                *(keep_on_stack(), take_maximum(), vector_math(), finish_host()),
                *(propagate_nan(), defined_arithmetic(), compare_booleans()),
            ]
        )

    return begin, finish, finish_device


_MOST_BYTES = 16 << 10
"""The most bytes of one buffer: threads have little stack."""
_STAYS_AS_IT_IS = {"disable_lower_builtin": tirx.IntImm("bool", 1)}
"""TVM's mark for an allocation that its code generator makes on the stack."""


def keep_on_stack() -> Any:
    """Return the pass that keeps register tiles on the stack, not in the runtime's workspace.

    TVM takes a block of the runtime's workspace for every buffer that a schedule made, register
    tiles included. Then each of their numbers is written back for no reader, and a vector that is
    read by its lanes goes through memory. On the stack, LLVM sees that they have no other readers,
    and keeps them in registers.
    """
    return on_bodies("KeepOnStack", _on_stack)


def _on_stack(body: Any) -> Any:
    def marked(allocation: Any) -> Any:
        if not _is_small_and_local(allocation.buffer):
            return allocation
        return tirx.AllocBuffer(allocation.buffer, _STAYS_AS_IT_IS, allocation.span)

    return tvm_ffi.structural_map(body, [(tirx.AllocBuffer, marked)])


def _is_small_and_local(buffer: Any) -> bool:
    if buffer.scope() != "local":
        return False
    extents = [getattr(extent, "value", None) for extent in buffer.shape]
    constant = [int(extent) for extent in extents if extent is not None]
    dtype = tvm_ffi.dtype(str(buffer.dtype))
    size = math.prod(constant) * int(dtype.bits) * int(dtype.lanes) // 8
    return len(constant) == len(extents) and size <= _MOST_BYTES


def take_maximum() -> Any:
    """Return the pass that uses the maximum instruction of Arm and of WebAssembly, which passes NaN
    on: a comparison and a selection take two or three. It runs after loops have become vectors,
    since TVM does not vectorise calls that it doesn't know."""
    return on_kernels("TakeMaximum", _taken)


_WITH_MAXIMUM = ("aarch64", "wasm32")


def _has_maximum(function: Any) -> bool:
    target = (function.attrs or {}).get("target")
    return (
        target is not None and architecture(str(target.attrs.get("mtriple", ""))) in _WITH_MAXIMUM
    )


def _taken(kernel: Any) -> Any:
    if not _has_maximum(kernel):
        return kernel

    def called(name: str, node: Any) -> Any:
        dtype = str(node.ty)
        if not dtype.startswith("float32"):
            return node
        return tirx.call_llvm_pure_intrin(dtype, name, node.a, node.b)

    maximum = (tirx.Max, lambda node: called("llvm.maximum", node))
    minimum = (tirx.Min, lambda node: called("llvm.minimum", node))
    return kernel.with_body(tvm_ffi.structural_map(kernel.body, [maximum, minimum]))


_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_BOOL, _NUMBER = "bool", "uint8"


def compare_booleans() -> Any:
    """Return the pass that rewrites comparisons that TVM's code generator for LLVM gets wrong.

    It treats compared booleans as floats, and fails. TVM's own simplifier writes such comparisons,
    for a division that rounds down and for a search. The code generator also computes that NaN
    differs from nothing, where IEEE 754 says that it differs from everything. The pass runs last
    before code generation: the simplifier would undo it, or write more such comparisons. The code
    generator also fails where it asks for the range of a number that is a vector of booleans.
    """
    return on_bodies("CompareBooleans", _in_numbers)


def _in_numbers(body: Any) -> Any:
    compared = [(kind, _compared) for kind in _COMPARISONS]
    return tvm_ffi.structural_map(body, [*compared, (tirx.Cast, _selected)])


def _selected(node: Any) -> Any:
    """Write a vector of booleans as numbers by a choice, whose condition has no range."""
    scalar, _, lanes = str(node.ty).rpartition("x")
    if not str(node.value.ty).startswith(f"{_BOOL}x") or not lanes.isdecimal():
        return node
    one, none = (tirx.Broadcast(tirx.const(number, scalar), int(lanes)) for number in (1, 0))
    return tirx.Select(node.value, one, none)


def _compared(node: Any) -> Any:
    dtype = str(node.a.ty)
    if isinstance(node, tirx.NE) and "float" in dtype:
        return tirx.Not(tirx.EQ(node.a, node.b))
    if not dtype.startswith(_BOOL):
        return node
    number = dtype.replace(_BOOL, _NUMBER, 1)
    return type(node)(tirx.Cast(number, node.a), tirx.Cast(number, node.b))
