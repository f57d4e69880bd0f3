"""Activation functions."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import (
    Converters,
    cast,
    in_float32,
    like,
    positive_axis,
    reshape,
    unary,
    wide,
)
from edgekit.models.onnx.values import Expr, as_expr, dtype_of, shape_of

op = relax.op

_SIXTH = float(np.float32(1 / 6))
"""One sixth as ONNX has it: an attribute is a float32."""


def _relu(value: Expr) -> Expr:
    if dtype_of(value).startswith(("int", "uint")):
        return op.maximum(value, like(0, value))
    return op.nn.relu(value)


def _elu(node: Node) -> Outputs:
    value = node.expr(0)
    curve = op.multiply(
        like(node.get("alpha", 1.0), value), op.subtract(op.exp(value), like(1, value))
    )
    return op.where(op.less(value, like(0, value)), curve, value)


def _celu(node: Node) -> Outputs:
    value, alpha = node.expr(0), node.get("alpha", 1.0)
    curve = op.subtract(op.exp(op.divide(value, like(alpha, value))), like(1, value))
    below = op.minimum(like(0, value), op.multiply(like(alpha, value), curve))
    return op.add(op.maximum(like(0, value), value), below)


def _selu(node: Node) -> Outputs:
    value = node.expr(0)
    alpha = like(node.get("alpha", 1.67326319217681884765625), value)
    gamma = like(node.get("gamma", 1.05070102214813232421875), value)
    curve = op.subtract(op.multiply(alpha, op.exp(value)), alpha)
    return op.multiply(gamma, op.where(op.less_equal(value, like(0, value)), curve, value))


def _leaky_relu(node: Node) -> Outputs:
    return op.nn.leakyrelu(node.expr(0), node.get("alpha", 0.01))


def _prelu(node: Node) -> Outputs:
    """Emit `relax.nn.prelu` for one slope per channel, which backends recognise."""
    value, slope = node.expr(0), node.expr(1)
    channels, ones = shape_of(value)[1:2], (1,) * (len(shape_of(value)) - 2)
    by_axis = shape_of(slope) in ((*channels, *ones), (1, *channels, *ones))
    if channels and (by_axis or (node.opset < 7 and shape_of(slope) == channels)):
        return op.nn.prelu(value, node.emit(reshape(slope, channels)), axis=1)
    return op.where(op.less(value, like(0, value)), op.multiply(value, slope), value)


def _thresholded_relu(node: Node) -> Outputs:
    value = node.expr(0)
    above = op.greater(value, like(node.get("alpha", 1.0), value))
    return op.where(above, value, like(0, value))


def _gelu(node: Node) -> Outputs:
    value = node.expr(0)
    gelu = op.nn.gelu_tanh if node.get("approximate", "none") == "tanh" else op.nn.gelu
    return cast(node.emit(gelu(wide(node, value))), dtype_of(value))


def _hard_sigmoid(node: Node) -> Outputs:
    value = node.expr(0)
    slope, offset = node.get("alpha", 0.2), node.get("beta", 0.5)
    line = op.add(op.multiply(value, like(slope, value)), like(offset, value))
    return op.clip(line, 0.0, 1.0)


def _hard_swish(node: Node) -> Outputs:
    value = node.expr(0)
    line = op.add(op.multiply(value, like(_SIXTH, value)), like(0.5, value))
    return op.multiply(value, op.clip(line, 0.0, 1.0))


def _softplus(value: Expr) -> Expr:
    """Compute log(1 + exp(x)) so that large x does not overflow."""
    folded = op.log(op.add(like(1, value), op.exp(op.negative(op.abs(value)))))
    return op.add(op.maximum(value, like(0, value)), folded)


def _mish(value: Expr) -> Expr:
    return op.multiply(value, op.tanh(_softplus(value)))


def _softsign(value: Expr) -> Expr:
    return op.divide(value, op.add(like(1, value), op.abs(value)))


def _swish(node: Node) -> Outputs:
    value = node.expr(0)
    scaled = op.multiply(value, like(node.get("alpha", 1.0), value))
    return op.multiply(value, op.sigmoid(scaled))


def _shrink(node: Node) -> Outputs:
    given = node.expr(0)
    is_whole = dtype_of(given).startswith(("int", "uint"))
    value = node.emit(op.astype(given, "float64")) if is_whole else given
    edge, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    below = op.less(value, like(-edge, value))
    above = op.greater(value, like(edge, value))
    zero = op.zeros(shape_of(value), dtype_of(value))
    middle = op.where(above, op.subtract(value, like(bias, value)), zero)
    shrunk = node.emit(op.where(below, op.add(value, like(bias, value)), middle))
    return cast(shrunk, dtype_of(given))


def _over_axis(node: Node, function: str) -> Outputs:
    """Convert a kind of softmax: over one axis since opset 13, before over all from `axis` on."""
    value = node.expr(0)
    shape, dtype = shape_of(value), dtype_of(value)
    if node.opset >= 13:
        axis = positive_axis(node.get("axis", -1), len(shape))
    else:
        split = positive_axis(node.get("axis", 1), len(shape))
        value = node.emit(op.reshape(value, (math.prod(shape[:split]), math.prod(shape[split:]))))
        axis = 1
    result = node.emit(_OVER_AXIS[function](value, axis))
    return cast(node.emit(reshape(result, shape)), dtype)


def _hardmax(value: Expr, axis: int) -> Expr:
    extent = shape_of(value)[axis]
    best = op.expand_dims(op.argmax(value, axis, keepdims=False), axis)
    numbers = np.arange(extent, dtype="int64").reshape(
        tuple(-1 if i == axis else 1 for i in range(len(shape_of(value))))
    )
    return op.astype(op.equal(best, as_expr(numbers)), dtype_of(value))


def _softmax(value: Expr, axis: int) -> Expr:
    """Compute float16 and bfloat16 step by step, rounding where ONNX's reference rounds."""
    dtype = dtype_of(value)
    if dtype not in ("float16", "bfloat16"):
        return op.nn.softmax(value, axis)
    shifted = op.exp(op.subtract(value, op.max(value, [axis], keepdims=True)))
    total = op.sum(op.astype(shifted, "float32"), [axis], keepdims=True)
    return op.divide(shifted, op.astype(total, dtype))


_OVER_AXIS = {
    "Softmax": _softmax,
    "LogSoftmax": op.nn.log_softmax,
    "Hardmax": _hardmax,
}

ACTIVATION: Converters = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Hardmax": lambda node: _over_axis(node, "Hardmax"),
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": lambda node: _over_axis(node, "LogSoftmax"),
    "Mish": in_float32(_mish),
    "PRelu": _prelu,
    "Relu": unary(_relu),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": unary(op.sigmoid),
    "Softmax": lambda node: _over_axis(node, "Softmax"),
    "Softplus": in_float32(_softplus),
    "Softsign": unary(_softsign),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
}
