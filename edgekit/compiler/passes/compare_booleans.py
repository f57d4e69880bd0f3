"""Rewrite comparisons that TVM's code generator for LLVM gets wrong.

It treats compared booleans as floats, and fails. TVM's own simplifier writes such comparisons, for
a division that rounds down and for a search. The code generator also computes that NaN differs from
nothing, where IEEE 754 says that it differs from everything.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from edgekit.compiler.rewriting import on_bodies

_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_BOOL, _NUMBER = "bool", "uint8"


def compare_booleans() -> Any:
    """Return the pass that runs last before code generation: TVM's simplifier would undo it, or
    write more such comparisons."""
    return on_bodies("CompareBooleans", _in_numbers)


def _in_numbers(body: Any) -> Any:
    return tvm_ffi.structural_map(body, [(kind, _compared) for kind in _COMPARISONS])


def _compared(node: Any) -> Any:
    dtype = str(node.a.ty)
    if isinstance(node, tirx.NE) and "float" in dtype:
        return tirx.Not(tirx.EQ(node.a, node.b))
    if not dtype.startswith(_BOOL):
        return node
    number = dtype.replace(_BOOL, _NUMBER, 1)
    return type(node)(tirx.Cast(number, node.a), tirx.Cast(number, node.b))
