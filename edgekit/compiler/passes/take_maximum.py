"""Use ARM's maximum instruction, which passes NaN on. TVM's comparison and selection takes two or
three instructions."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from edgekit.profiles.cpu import architecture


@tvm.transform.module_pass(opt_level=0, name="edgekit.TakeMaximum")
class TakeMaximum:
    """Runs after loops have become vectors: TVM does not vectorise calls that it doesn't know."""

    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        for variable, function in list(module.functions_items()):
            if isinstance(function, tirx.PrimFunc) and _is_for_arm(function):
                module.update_func(variable, function.with_body(_taken(function.body)))
        return module


def _is_for_arm(function: Any) -> bool:
    target = (function.attrs or {}).get("target")
    return target is not None and architecture(str(target.attrs.get("mtriple", ""))) == "aarch64"


def _taken(body: Any) -> Any:
    def called(name: str, node: Any) -> Any:
        dtype = str(node.ty)
        if not dtype.startswith("float32"):
            return node
        return tirx.call_llvm_pure_intrin(dtype, name, node.a, node.b)

    return tvm_ffi.structural_map(
        body,
        [
            (tirx.Max, lambda node: called("llvm.maximum", node)),
            (tirx.Min, lambda node: called("llvm.minimum", node)),
        ],
    )
