"""Fourier transforms, as products with constant matrices: lengths are known and mostly short."""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgekit.base.wording import counted
from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, known_scalar, positive_axis, take_at
from edgekit.models.onnx.operators.layout import pad
from edgekit.models.onnx.values import Expr, as_expr, dtype_of, shape_of

op = relax.op
LONGEST = 4096
"""The most points of a transform; the matrices grow with the square."""


def _dft(node: Node) -> Outputs:
    value, shape = node.expr(0), node.shape(0)
    rank = len(shape)
    axis = node.get("axis", 1) if node.opset < 20 else -2
    if node.opset >= 20 and node.has(2):
        axis = int(known_scalar(node.known(2)))
    axis = positive_axis(axis, rank)
    inverse, onesided = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    if node.has(1):
        length = int(known_scalar(node.known(1)))
    order = [i for i in range(rank) if i not in (axis, rank - 1)] + [rank - 1, axis]
    moved = node.emit(op.permute_dims(value, order))
    result = transform(node, moved, length, inverse, onesided)
    return op.permute_dims(result, [order.index(i) for i in range(rank)])


def transform(node: Node, value: Expr, length: int, inverse: bool, onesided: bool) -> Expr:
    """Transform the last axis; the axis before it holds the real and the imaginary part."""
    if length > LONGEST:
        raise RefusedError(f"it transforms {counted(length, 'point')}, more than {LONGEST}")
    half = length // 2 + 1
    points = half if inverse and onesided else length
    rank = len(shape_of(value))
    missing = points - shape_of(value)[-1]
    if missing:
        value = pad(node, value, [0] * rank, [0] * (rank - 1) + [missing])
    frequencies = half if onesided and not inverse else length
    angle = 2 * np.pi / length * np.outer(np.arange(points), np.arange(frequencies))
    real, imaginary = np.cos(angle), np.sin(angle) if inverse else -np.sin(angle)
    scale = np.ones((points, 1))
    if inverse:
        scale /= length
        if onesided:
            mirrored = slice(1, points - 1 if length % 2 == 0 else points)
            scale[mirrored] *= 2
    dtype = dtype_of(value)
    cosine, sine = (as_expr((m * scale).astype(dtype)) for m in (real, imaginary))
    parts = [
        node.emit(take_at(value, relax.const([i], "int64"), axis=rank - 2))
        for i in range(shape_of(value)[-2])
    ]
    first = op.matmul(parts[0], cosine)
    second = op.matmul(parts[0], sine)
    if len(parts) == 2:
        first = op.subtract(first, op.matmul(parts[1], sine))
        second = op.add(second, op.matmul(parts[1], cosine))
    if inverse and onesided:
        return node.emit(first)
    return node.emit(op.concat([first, second], axis=rank - 2))


def _stft(node: Node) -> Outputs:
    signal, (batch, length, parts) = node.expr(0), node.shape(0)
    step = int(known_scalar(node.known(1)))
    if node.has(3):
        size = int(known_scalar(node.known(3)))
    elif node.has(2):
        size = node.shape(2)[0]
    else:
        size = length
    count = (length - size) // step + 1
    places = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1)
    frames = op.reshape(
        take_at(signal, as_expr(places.astype(np.int64)), axis=1), (batch, count, size, parts)
    )
    frames = node.emit(op.permute_dims(frames, [0, 1, 3, 2]))
    if node.has(2):
        frames = node.emit(op.multiply(frames, node.expr(2)))
    result = transform(node, frames, size, False, bool(node.get("onesided", 1)))
    return op.permute_dims(result, [0, 1, 3, 2])


SIGNAL: Converters = {"DFT": _dft, "STFT": _stft}
