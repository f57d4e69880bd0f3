"""Quantised arithmetic, as quantize and dequantize around the float operator.

The int8 backends match that pair, whether it comes from a QDQ model or from an operator like
QLinearConv.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, positive_axis, reshape, take_at
from edgekit.models.onnx.operators.convolution import convolve
from edgekit.models.onnx.values import Expr, Tensor, as_expr, dtype_of, is_known, shape_of

op = relax.op
RELAX_TYPES = ("int8", "uint8", "int16", "uint16", "int32")
_AS_PAIRS = "{} was written as dequantize, the float operator and quantize"
SMALL_INTEGERS = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}


def widened(value: Tensor) -> Tensor:
    """Store known values of 4 and 2 bits in a byte each, the smallest unit of devices."""
    if is_known(value) and str(value.dtype) in SMALL_INTEGERS:
        return value.astype(SMALL_INTEGERS[str(value.dtype)])
    return value


def _scalar(node: Node, value: Tensor) -> Expr:
    """Return a per-tensor scale or zero point as a scalar, with or without an axis around it."""
    if is_known(value):
        return as_expr(value.reshape(()))
    return node.emit(reshape(value, ()))


def _along(node: Node, value: Tensor, shape: tuple[int, ...], axis: int, block: int) -> Expr:
    """Reshape a scale or zero point to broadcast to the tensor."""
    expr = as_expr(widened(value))
    if block:
        repeated = np.arange(shape[axis]) // block
        return node.emit(take_at(expr, as_expr(repeated.astype(np.int64)), axis=axis))
    if shape_of(expr) in ((), (1,)):
        return _scalar(node, expr)
    return node.emit(op.reshape(expr, tuple(-1 if i == axis else 1 for i in range(len(shape)))))


def _axis(node: Node) -> int:
    rank = len(node.shape(0))
    return min(positive_axis(node.get("axis", 1), max(rank, 1)), max(rank - 1, 0))


def _quantize_linear(node: Node) -> Outputs:
    zero = node.value(2) if node.has(2) else np.zeros(node.shape(1), _quantized_dtype(node))
    block = node.get("block_size", 0)
    return quantize(node, node.expr(0), node.value(1), zero, _axis(node), block)


def _quantized_dtype(node: Node) -> str:
    import onnx

    element = node.get("output_dtype", 0)
    return str(onnx.helper.tensor_dtype_to_np_dtype(element)) if element else "uint8"


def quantize(
    node: Node, value: Expr, scale: Tensor, zero: Tensor, axis: int = 0, block: int = 0
) -> Expr:
    target = dtype_of(zero)
    if target not in RELAX_TYPES:
        raise RefusedError(f"devices have no {target} to quantise to")
    single = shape_of(scale) in ((), (1,))
    if dtype_of(value) == "float32" and not block and is_known(scale) and is_known(zero):
        if single:
            return op.quantize(value, _scalar(node, scale), _scalar(node, zero), axis, target)
        return op.quantize(value, as_expr(scale), as_expr(zero), axis, target)
    shape = shape_of(value)
    steps = op.divide(
        cast(value, "float32"), cast(_along(node, scale, shape, axis, block), "float32")
    )
    shifted = op.add(op.round(steps), cast(_along(node, zero, shape, axis, block), "float32"))
    limits = np.iinfo(target)
    return op.astype(op.clip(shifted, float(limits.min), float(limits.max)), target)


def _dequantize_linear(node: Node) -> Outputs:
    axis, block = _axis(node), node.get("block_size", 0)
    zero = node.value(2) if node.has(2) else None
    return dequantize(node, node.value(0), node.value(1), zero, axis, block)


def dequantize(
    node: Node, value: Tensor, scale: Tensor, zero: Tensor | None, axis: int = 0, block: int = 0
) -> Expr:
    expr = as_expr(widened(value))
    source, shape = dtype_of(expr), shape_of(expr)
    if source not in RELAX_TYPES:
        raise RefusedError(f"devices have no {source} to dequantise from")
    if zero is None:
        zero = np.zeros(shape_of(scale), source)
    zero = widened(zero)
    single = shape_of(scale) in ((), (1,))
    if dtype_of(scale) == "float32" and not block and is_known(scale) and is_known(zero):
        if single:
            return op.dequantize(expr, _scalar(node, scale), _scalar(node, zero), axis, "float32")
        return op.dequantize(expr, as_expr(scale), as_expr(zero), axis, "float32")
    if is_known(value) and is_known(scale) and is_known(zero):
        return as_expr(_known_reals(widened(value), scale, zero, axis, block))
    shifted = op.subtract(
        op.astype(expr, "int32"), op.astype(_along(node, zero, shape, axis, block), "int32")
    )
    factor = _along(node, scale, shape, axis, block)
    result = op.multiply(op.astype(shifted, "float32"), cast(factor, "float32"))
    return cast(node.emit(result), dtype_of(factor))


def _known_reals(
    stored: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int, block: int
) -> np.ndarray:
    """Dequantise what is known, once, instead of in every inference."""

    def spread(values: np.ndarray) -> np.ndarray:
        if block:
            return values.take(np.arange(stored.shape[axis]) // block, axis)
        if values.size == 1:
            return values.reshape(())
        return values.reshape([-1 if i == axis else 1 for i in range(stored.ndim)])

    shifted = stored.astype("int32") - spread(zero).astype("int32")
    real = shifted.astype("float32") * spread(scale).astype("float32")
    return np.asarray(real.astype(scale.dtype))


def _qlinear_conv(node: Node) -> Outputs:
    node.repaired(_AS_PAIRS.format(node.operator))
    value = node.emit(dequantize(node, node.value(0), node.value(1), node.value(2)))
    weight = node.emit(dequantize(node, node.value(3), node.value(4), node.value(5), 0))
    result = node.emit(convolve(node, value, weight))
    if node.has(8):
        result = node.emit(op.add(result, _bias(node, len(shape_of(result)))))
    return quantize(node, result, node.value(6), node.value(7))


def _bias(node: Node, rank: int) -> Expr:
    """Return the bias; int32 counts in steps of the input's scale times the weight's."""
    first, second, bias = node.value(1), node.value(4), node.value(8)
    if is_known(first) and is_known(second) and is_known(bias):
        scale = np.asarray(first.reshape(()) * second.squeeze(), np.float32)
        result = node.emit(dequantize(node, bias, scale, np.zeros(scale.shape, np.int32)))
    else:
        scale = op.multiply(_scalar(node, first), _scalar(node, second))
        result = op.multiply(op.astype(as_expr(bias), "float32"), scale)
    return op.reshape(result, (1, -1) + (1,) * (rank - 2))


def _qlinear_matmul(node: Node) -> Outputs:
    node.repaired(_AS_PAIRS.format(node.operator))
    left_axis, right_axis = len(node.shape(0)) - 2, len(node.shape(3)) - 1
    left = dequantize(node, node.value(0), node.value(1), node.value(2), left_axis)
    right = dequantize(node, node.value(3), node.value(4), node.value(5), right_axis)
    result = node.emit(
        op.matmul(cast(node.emit(left), "float32"), cast(node.emit(right), "float32"))
    )
    axis = len(shape_of(result)) - 1
    return quantize(node, result, node.value(6), node.value(7), axis)


QUANTIZATION: Converters = {
    "DequantizeLinear": _dequantize_linear,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize_linear,
}
