"""Helpers of the converters of every family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Converter, Node, Outputs
from edgekit.models.onnx.values import Expr, as_expr, constant, dtype_named, dtype_of, shape_of

op = relax.op


def cast(value: Expr, dtype: str) -> Expr:
    """Convert the value to another type, without ONNX's rules for bool."""
    return value if dtype_of(value) == dtype else op.astype(value, dtype)


def like(number: float | int, value: Expr) -> Expr:
    """Return a scalar constant of the value's type."""
    return constant(number, dtype_of(value))


def reshape(value: Expr, shape: Sequence[int]) -> Expr:
    if shape_of(value) == tuple(shape):
        return value
    if 0 in shape_of(value):
        return op.zeros(tuple(shape), dtype_of(value))
    return op.reshape(value, tuple(shape))


def broadcast(value: Expr, shape: Sequence[int]) -> Expr:
    if shape_of(value) == tuple(shape):
        return value
    if dtype_of(value) != "bfloat16":
        return op.broadcast_to(value, tuple(shape))
    # TVM fails on a bfloat16 that is only repeated over the lanes of a vector. A product is exact.
    own = (1,) * (len(shape) - len(shape_of(value))) + shape_of(value)
    repeated = tuple(e if was == 1 else 1 for e, was in zip(shape, own, strict=True))
    return op.multiply(value, as_expr(np.ones(repeated, dtype_named("bfloat16"))))


def positive_axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def unary(function: Callable[[Expr], Expr]) -> Converter:
    """Return a converter that applies a function to the only input."""

    def convert(node: Node) -> Outputs:
        return function(node.expr(0))

    return convert


def in_float32(function: Callable[[Expr], Expr]) -> Converter:
    """Compute in float32: half precision loses too much, and has no device code for some."""

    def convert(node: Node) -> Outputs:
        value = node.expr(0)
        return cast(node.emit(function(wide(node, value))), dtype_of(value))

    return convert


def wide(node: Node, value: Expr) -> Expr:
    """Widen float16 and bfloat16 to float32, so that sums and exponentials stay accurate."""
    narrow = dtype_of(value) in ("float16", "bfloat16")
    return node.emit(op.astype(value, "float32")) if narrow else value


def take_at(value: Expr, indices: Expr, axis: int) -> Expr:
    """Take with indices clamped to the axis: TVM's faster mode reads beyond it."""
    return op.take(value, indices, axis=axis, mode="clip")


def known_scalar(value: Any) -> Any:
    return value.reshape(-1)[0].item()


Converters = Mapping[str, Converter]
