"""Differences of floats that TVM's simplifier would cancel.

It makes x of (x + y) - y, and -y of x - (x + y). That is true of real numbers, and of floats only
if the sum is exact: models round by adding and subtracting a large number, and a sum may overflow.
As the sum of a product with -1, which compilers make a difference again, they stay what they are.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from edgekit.compiler.rewriting import on_bodies


def exact_differences() -> Any:
    """Return the pass that runs before the simplifier sees kernels."""
    return on_bodies("ExactDifferences", exact)


def exact(body: Any) -> Any:
    return tvm_ffi.structural_map(body, [(tirx.Sub, _kept)])


def _kept(node: Any) -> Any:
    dtype = str(node.ty)
    if "float" not in dtype:
        return node
    may_cancel = any(isinstance(each, tirx.Add) for each in (node.a, node.b))
    if not may_cancel and not tvm_ffi.structural_equal(node.a, node.b):
        return node
    return tirx.Add(node.a, tirx.Mul(node.b, tirx.const(-1.0, dtype)))
