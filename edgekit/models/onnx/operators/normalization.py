"""Normalisations."""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import (
    Converters,
    cast,
    like,
    positive_axis,
    reshape,
    wide,
)
from edgekit.models.onnx.values import Expr, as_expr, dtype_of, shape_of

op = relax.op


def _batch_normalization(node: Node) -> Outputs:
    value, epsilon = node.expr(0), node.get("epsilon", 1e-5)
    dtype = dtype_of(value)
    value = wide(node, value)
    scale, bias, mean, variance = (cast(node.expr(i), dtype_of(value)) for i in range(1, 5))
    if node.get("training_mode", 0):
        return _batch_normalization_in_training(node)
    result = op.nn.batch_norm(
        value, scale, bias, mean, variance, axis=1, epsilon=epsilon, training=False
    )
    return cast(node.emit(relax.TupleGetItem(node.emit(result), 0)), dtype)


def _batch_normalization_in_training(node: Node) -> Outputs:
    """Normalise with the batch's own statistics, and update the running ones."""
    value, epsilon, momentum = node.expr(0), node.get("epsilon", 1e-5), node.get("momentum", 0.9)
    rank = len(shape_of(value))
    others = [axis for axis in range(rank) if axis != 1]
    mean = node.emit(op.mean(value, others, keepdims=True))
    centred = node.emit(op.subtract(value, mean))
    variance = node.emit(op.mean(op.multiply(centred, centred), others, keepdims=True))
    channels = (1, -1) + (1,) * (rank - 2)
    scale, bias = (op.reshape(node.expr(i), channels) for i in (1, 2))
    result = _normalized(centred, variance, epsilon)
    running = [
        node.emit(
            op.add(
                op.multiply(node.expr(i), like(momentum, value)),
                op.multiply(op.reshape(batch, (-1,)), like(1 - momentum, value)),
            )
        )
        for i, batch in ((3, mean), (4, variance))
    ]
    return [node.emit(op.add(op.multiply(result, scale), bias)), *running]


def _normalized(centred: Expr, variance: Expr, epsilon: float) -> Expr:
    return op.divide(centred, op.sqrt(op.add(variance, like(epsilon, variance))))


def _layer_normalization(node: Node) -> Outputs:
    value, epsilon = node.expr(0), node.get("epsilon", 1e-5)
    shape, dtype = shape_of(value), dtype_of(value)
    first = positive_axis(node.get("axis", -1), len(shape))
    axes = list(range(first, len(shape)))
    full = shape[first:]
    value = wide(node, value)
    scale = node.emit(cast(node.expr(1), dtype_of(value)))
    bias = node.emit(cast(node.expr(2), dtype_of(value))) if node.has(2) else None
    fits = shape_of(scale) == full and (bias is None or shape_of(bias) == full)
    if fits and not node.wants(1) and not node.wants(2):
        if bias is None:
            bias = as_expr(np.zeros(full, dtype_of(value)))
        return cast(node.emit(op.nn.layer_norm(value, scale, bias, axes, epsilon)), dtype)
    mean = node.emit(op.mean(value, axes, keepdims=True))
    centred = node.emit(op.subtract(value, mean))
    variance = op.mean(op.multiply(centred, centred), axes, keepdims=True)
    inverse = node.emit(op.divide(like(1, value), op.sqrt(op.add(variance, like(epsilon, value)))))
    result = op.multiply(op.multiply(centred, inverse), scale)
    if bias is not None:
        result = op.add(result, bias)
    return [cast(node.emit(result), dtype), mean, inverse]


def _rms_normalization(node: Node) -> Outputs:
    value, epsilon = node.expr(0), node.get("epsilon", 1e-5)
    shape, dtype = shape_of(value), dtype_of(value)
    axes = list(range(positive_axis(node.get("axis", -1), len(shape)), len(shape)))
    value = wide(node, value)
    square = op.mean(op.multiply(value, value), axes, keepdims=True)
    result = op.divide(value, op.sqrt(op.add(square, like(epsilon, value))))
    return op.multiply(cast(node.emit(result), dtype), node.expr(1))


def _instance_normalization(node: Node) -> Outputs:
    value, rank = node.expr(0), len(node.shape(0))
    return _grouped(node, value, list(range(2, rank)), node.shape(0), (1, -1) + (1,) * (rank - 2))


def _group_normalization(node: Node) -> Outputs:
    """Normalise groups; scale and bias are per group before opset 21, per channel since."""
    shape, groups = node.shape(0), node.get("num_groups")
    value = wide(node, node.expr(0))
    parts = (shape[0], groups, shape[1] // groups, *shape[2:])
    split = node.emit(op.reshape(value, parts))
    per_channel = (1, groups, shape[1] // groups) if node.opset >= 21 else (1, groups, 1)
    affine = per_channel + (1,) * (len(shape) - 2)
    return _grouped(node, split, list(range(2, len(parts))), shape, affine)


def _grouped(
    node: Node, value: Expr, axes: list[int], shape: tuple[int, ...], affine: tuple[int, ...]
) -> Expr:
    value = wide(node, value)
    scale, bias = (
        node.emit(op.reshape(node.emit(cast(node.expr(i), dtype_of(value))), affine))
        for i in (1, 2)
    )
    mean = node.emit(op.mean(value, axes, keepdims=True))
    centred = node.emit(op.subtract(value, mean))
    variance = node.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    result = _normalized(centred, variance, node.get("epsilon", 1e-5))
    whole = node.emit(reshape(node.emit(op.add(op.multiply(result, scale), bias)), shape))
    return cast(whole, node.dtype(0))


def _lrn(node: Node) -> Outputs:
    """Sum squares over neighbouring channels, with one shifted copy per neighbour."""
    value, size = node.expr(0), node.get("size")
    shape, low = shape_of(value), (size - 1) // 2
    widths = [0, 0, low, size - 1 - low] + [0] * (2 * (len(shape) - 2))
    square = node.emit(op.nn.pad(op.multiply(value, value), widths, "constant", 0.0))
    total = None
    for start in range(size):
        piece = op.strided_slice(square, [1], [start], [start + shape[1]])
        total = piece if total is None else op.add(total, piece)
    scale = op.add(
        like(node.get("bias", 1.0), value),
        op.multiply(total, like(node.get("alpha", 1e-4) / size, value)),
    )
    return op.divide(value, op.power(scale, like(node.get("beta", 0.75), value)))


def _lp_normalization(node: Node) -> Outputs:
    value, axis = node.expr(0), node.get("axis", -1)
    if node.get("p", 2) == 1:
        norm = op.sum(op.abs(value), [axis], keepdims=True)
    else:
        norm = op.sqrt(op.sum(op.multiply(value, value), [axis], keepdims=True))
    norm = node.emit(norm)
    zero = op.equal(norm, like(0, norm))
    return op.where(
        zero,
        op.zeros(shape_of(value), dtype_of(value)),
        op.divide(value, op.where(zero, like(1, norm), norm)),
    )


def _dropout(node: Node) -> Outputs:
    """Return the input: inference drops nothing."""
    from edgekit.models.onnx.node import RefusedError

    training = bool(node.known(2).reshape(-1)[0]) if node.has(2) else False
    ratio = float(node.known(1).reshape(-1)[0]) if node.has(1) else 0.5
    if training and ratio:
        raise RefusedError("it drops elements at random, which only training does")
    mask = np.ones(node.shape(0), bool)
    return [node.value(0), mask]


NORMALIZATION: Converters = {
    "BatchNormalization": _batch_normalization,
    "Dropout": _dropout,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "RMSNormalization": _rms_normalization,
}
