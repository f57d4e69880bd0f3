"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ml_dtypes import finfo
from tvm import relax, te, tirx

from edgekit.base.arrays import numpy_dtype
from edgekit.models.arithmetic import (
    floored_remainder,
    shifted,
    truncated_division,
    truncated_remainder,
)
from edgekit.models.onnx.node import Converter, Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import (
    Converters,
    cast,
    in_float32,
    like,
    reshape,
    unary,
    wide,
)
from edgekit.models.onnx.values import (
    Expr,
    Tensor,
    as_expr,
    dtype_named,
    dtype_of,
    is_float,
    is_known,
    shape_of,
)

op = relax.op


def binary(function: Callable[[Expr, Expr], Expr]) -> Converter:
    def convert(node: Node) -> Outputs:
        return function(*aligned(node))

    return convert


def aligned(node: Node) -> tuple[Expr, Expr]:
    """Return both inputs; before opset 7, `axis` places the second."""
    first, second = node.expr(0), node.expr(1)
    if node.opset < 7 and node.get("axis") is not None:
        rank, axis = len(shape_of(first)), node.get("axis")
        inner = shape_of(second)
        padded = inner + (1,) * (rank - axis - len(inner))
        second = node.emit(op.reshape(second, padded))
    return first, second


def variadic(function: Callable[[Expr, Expr], Expr]) -> Converter:
    """Convert an operator with any number of inputs, two at a time."""

    def convert(node: Node) -> Outputs:
        result = node.expr(0)
        for position in range(1, len(node.inputs)):
            result = function(result, node.expr(position))
        return result

    return convert


def _mean(node: Node) -> Outputs:
    total = variadic(op.add)(node)
    return op.divide(total, like(len(node.inputs), node.expr(0)))


def _divide(node: Node) -> Outputs:
    first, second = aligned(node)
    if is_float(dtype_of(first)):
        return op.divide(first, second)
    return integer_division(node, first, second)


def integer_division(node: Node, first: Expr, second: Expr) -> Expr:
    """Divide whole numbers towards zero, as ONNX's runtimes do."""
    _refuse_zero(node)
    return truncated_division(node.block, first, second)


def _modulo(node: Node) -> Outputs:
    first, second = aligned(node)
    remainder = truncated_remainder if node.get("fmod", 0) else floored_remainder
    if is_float(dtype_of(first)):
        result = remainder(node.block, wide(node, first), wide(node, second))
        return cast(result, dtype_of(first))
    _refuse_zero(node)
    return remainder(node.block, first, second)


def _refuse_zero(node: Node) -> None:
    """Refuse a constant zero among whole divisors: processors abort the program."""
    divisor = node.value(1) if len(node.inputs) > 1 else None
    if is_known(divisor) and not np.all(divisor):
        raise RefusedError("it divides whole numbers by zero")


def _power(node: Node) -> Outputs:
    base, exponent = aligned(node)
    dtype = dtype_of(base)
    known = node.value(1)
    if is_known(known) and known.size == 1 and float(known.reshape(-1)[0]) == 2.0:
        return _in_shape_of_both(op.multiply(base, base), shape_of(base), known.shape)
    if is_float(dtype):
        wide_base = wide(node, base)
        result = op.power(wide_base, cast(exponent, dtype_of(wide_base)))
        return cast(node.emit(result), dtype)
    result = node.emit(op.power(cast(base, "float64"), cast(exponent, "float64")))
    return op.astype(op.round(result) if not is_float(dtype_of(exponent)) else result, dtype)


def _in_shape_of_both(value: Expr, own: tuple[int, ...], other: tuple[int, ...]) -> Expr:
    shape = tuple(np.broadcast_shapes(own, other))
    return value if shape == own else op.broadcast_to(value, shape)


def _bit_shift(node: Node) -> Outputs:
    return shifted(node.block, node.expr(0), node.expr(1), left=node.get("direction") == "LEFT")


def _clip(node: Node) -> Outputs:
    """Emit `relax.clip` if both bounds are known, so that ReLU6 can be recognised.

    A bound that is missing is the type's least or largest number, which infinity exceeds.
    """
    value = node.expr(0)
    low, high = (
        (node.get("min"), node.get("max")) if node.opset < 11 else (node.value(1), node.value(2))
    )
    if is_float(dtype_of(value)):
        limits = finfo(numpy_dtype(dtype_of(value)))
        low = float(limits.min) if low is None else low
        high = float(limits.max) if high is None else high
    least, most = _number(low), _number(high)
    if is_float(dtype_of(value)) and least is not None and most is not None and least <= most:
        return op.clip(value, least, most)
    if low is not None:
        value = op.maximum(value, _bound(low, value))
    if high is not None:
        value = op.minimum(value, _bound(high, node.expr(0)))
    return value


def _number(bound: Tensor | float | None) -> float | None:
    if bound is None or isinstance(bound, float):
        return bound
    return float(bound.reshape(-1)[0]) if is_known(bound) else None


def _bound(bound: Tensor | float, value: Expr) -> Expr:
    if isinstance(bound, float):
        return like(bound, value)
    return reshape(as_expr(bound), ())


def _cast_to(node: Node, value: Expr, dtype: str) -> Expr:
    source = dtype_of(value)
    if source == dtype:
        return value
    if dtype == "bool":
        return op.not_equal(value, like(0, value))
    if source == "bool" or (dtype in ("float16", "bfloat16") and source in ("float16", "bfloat16")):
        return op.astype(op.astype(value, "float32" if is_float(dtype) else "int32"), dtype)
    return op.astype(value, dtype)


def _cast(node: Node) -> Outputs:
    return _cast_to(node, node.expr(0), _device_dtype(node.get("to")))


def _cast_like(node: Node) -> Outputs:
    value = node.value(0)
    if is_known(value):
        return value.astype(dtype_named(node.dtype(1)))
    return _cast_to(node, value, node.dtype(1))


def _bit_cast(node: Node) -> Outputs:
    """Take the bits of each number for those of another type of the same width."""
    wanted = _device_dtype(node.get("to"))
    value = node.value(0)
    if is_known(value):
        return value.view(dtype_named(wanted))
    value = node.expr(0)
    if "bool" in (wanted, dtype_of(value)):  # a byte that is 0 or 1
        return _cast_to(node, value, wanted)

    def compute(x: Any) -> Any:
        return te.compute(x.shape, lambda *at: tirx.reinterpret(wanted, x(*at)), name="bits")

    return node.block.emit_te(compute, value, primfunc_name_hint="bit_cast")


def _device_dtype(element: int) -> str:
    import onnx

    if element == onnx.TensorProto.STRING:
        raise RefusedError("devices don't work with text")
    return str(onnx.helper.tensor_dtype_to_np_dtype(element))


def _where(node: Node) -> Outputs:
    return op.where(node.expr(0), node.expr(1), node.expr(2))


def _is_inf(node: Node) -> Outputs:
    value = node.expr(0)
    positive = op.equal(value, like(np.inf, value))
    negative = op.equal(value, like(-np.inf, value))
    wanted = (node.get("detect_positive", 1), node.get("detect_negative", 1))
    if wanted == (1, 1):
        return op.logical_or(positive, negative)
    if wanted == (1, 0):
        return positive
    if wanted == (0, 1):
        return negative
    return op.zeros(shape_of(value), "bool")


def _absolute(value: Expr) -> Expr:
    return value if dtype_of(value).startswith("uint") else op.abs(value)


def _sign(value: Expr) -> Expr:
    if dtype_of(value).startswith("uint"):
        return op.astype(op.greater(value, like(0, value)), dtype_of(value))
    if is_float(dtype_of(value)):
        return op.where(_is_nan(value), value, op.sign(value))
    return op.sign(value)


def _is_nan(value: Expr) -> Expr:
    """Test for NaN; TVM has no such test for bfloat16."""
    return op.isnan(op.astype(value, "float32") if dtype_of(value) == "bfloat16" else value)


def _whole(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Round floats; integers stay as they are."""
    return lambda value: function(value) if is_float(dtype_of(value)) else value


ELEMENTWISE: Converters = {
    "Abs": unary(_absolute),
    "Acos": in_float32(op.acos),
    "Acosh": in_float32(op.acosh),
    "Add": binary(op.add),
    "And": binary(op.logical_and),
    "Asin": in_float32(op.asin),
    "Asinh": in_float32(op.asinh),
    "Atan": in_float32(op.atan),
    "Atanh": in_float32(op.atanh),
    "BitShift": _bit_shift,
    "BitwiseAnd": binary(op.bitwise_and),
    "BitwiseNot": unary(op.bitwise_not),
    "BitwiseOr": binary(op.bitwise_or),
    "BitwiseXor": binary(op.bitwise_xor),
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": unary(_whole(op.ceil)),
    "Clip": _clip,
    "Cos": in_float32(op.cos),
    "Cosh": in_float32(op.cosh),
    "Div": _divide,
    "Equal": binary(op.equal),
    "Erf": in_float32(op.erf),
    "Exp": in_float32(op.exp),
    "Floor": unary(_whole(op.floor)),
    "Greater": binary(op.greater),
    "GreaterOrEqual": binary(op.greater_equal),
    "Identity": lambda node: node.value(0),
    "IsInf": _is_inf,
    "IsNaN": unary(_is_nan),
    "Less": binary(op.less),
    "LessOrEqual": binary(op.less_equal),
    "Log": in_float32(op.log),
    "Max": variadic(op.maximum),
    "Mean": _mean,
    "Min": variadic(op.minimum),
    "Mod": _modulo,
    "Mul": binary(op.multiply),
    "Neg": unary(op.negative),
    "Not": unary(op.logical_not),
    "Or": binary(op.logical_or),
    "Pow": _power,
    "Reciprocal": unary(lambda value: op.divide(like(1, value), value)),
    "Round": unary(_whole(op.round)),
    "Sign": unary(_sign),
    "Sin": in_float32(op.sin),
    "Sinh": in_float32(op.sinh),
    "Sqrt": in_float32(op.sqrt),
    "Sub": binary(op.subtract),
    "Sum": variadic(op.add),
    "Tan": in_float32(op.tan),
    "Tanh": in_float32(op.tanh),
    "Where": _where,
    "Xor": binary(op.logical_xor),
}
