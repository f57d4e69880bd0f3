"""The values on the edges of the graph during an import.

A value known at build time is a numpy array; one computed on the device is a Relax expression; a
sequence is a tuple of values, since its length is always known at build time.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from tvm import relax

from edgekit.base.tvm_compat import as_constant

Expr: TypeAlias = Any
"""A `relax.Expr`; TVM ships no types."""
Tensor: TypeAlias = np.ndarray | Expr
Value: TypeAlias = Any
"""`Tensor`, a tuple of values (a sequence), or None (an input left out)."""

FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})


def is_known(value: Value) -> bool:
    return isinstance(value, np.ndarray)


def as_expr(value: Tensor) -> Expr:
    """Return the value as a Relax expression; a known one becomes a constant."""
    if isinstance(value, np.ndarray):
        return as_constant(np.ascontiguousarray(value).reshape(value.shape))
    return value


def shape_of(value: Tensor) -> tuple[int, ...]:
    if isinstance(value, np.ndarray):
        return tuple(value.shape)
    return tuple(int(extent) for extent in value.ty.shape.values)


def dtype_of(value: Tensor) -> str:
    if isinstance(value, np.ndarray):
        return str(value.dtype)
    return str(value.ty.dtype)


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def dtype_minimum(dtype: str) -> float | int:
    """Return the smallest value, -inf for floats."""
    return -float("inf") if is_float(dtype) else int(np.iinfo(dtype).min)


def dtype_maximum(dtype: str) -> float | int:
    return float("inf") if is_float(dtype) else int(np.iinfo(dtype).max)


def constant(number: float | int | bool, dtype: str) -> Expr:
    """Return a scalar constant."""
    return relax.const(np.array(number).astype(np.dtype(dtype_named(dtype))), dtype)


def dtype_named(dtype: str) -> Any:
    """Return numpy's dtype of this name, including bfloat16 and the small types."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))
