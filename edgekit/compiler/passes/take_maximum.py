"""Use ARM's maximum instruction, which passes NaN on. TVM's comparison and selection takes two or
three instructions."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from edgekit.compiler.rewriting import on_kernels
from edgekit.profiles.cpu import architecture


def take_maximum() -> Any:
    """Return the pass that runs after loops have become vectors: TVM does not vectorise calls that
    it doesn't know."""
    return on_kernels("TakeMaximum", _taken)


def _is_for_arm(function: Any) -> bool:
    target = (function.attrs or {}).get("target")
    return target is not None and architecture(str(target.attrs.get("mtriple", ""))) == "aarch64"


def _taken(kernel: Any) -> Any:
    if not _is_for_arm(kernel):
        return kernel

    def called(name: str, node: Any) -> Any:
        dtype = str(node.ty)
        if not dtype.startswith("float32"):
            return node
        return tirx.call_llvm_pure_intrin(dtype, name, node.a, node.b)

    maximum = (tirx.Max, lambda node: called("llvm.maximum", node))
    minimum = (tirx.Min, lambda node: called("llvm.minimum", node))
    return kernel.with_body(tvm_ffi.structural_map(kernel.body, [maximum, minimum]))
