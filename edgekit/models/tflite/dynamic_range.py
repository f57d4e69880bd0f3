"""Operators whose weights are int8 and whose input is float ("dynamic range quantisation").

LiteRT rounds the input to the 256 steps of its range, multiplies in integers and scales the sums.
The input is rounded here in the same way but kept as floats, and the weights become floats once,
on import: sums of products of whole numbers of 8 bits lose nothing that matters in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.tensors import Quantization

op = relax.op


def weights_as_floats(stored: Array, quantization: Quantization) -> Array:
    scales = np.array(quantization.scales, "float32")
    if quantization.axis is not None:
        shape = [-1 if axis == quantization.axis else 1 for axis in range(stored.ndim)]
        scales = scales.reshape(shape)
    return np.asarray(stored.astype("float32") * scales)


def rounded(builder: Any, data: Any, axes: list[int], symmetric: bool) -> Any:
    """Round to the steps of the range over `axes`, as LiteRT does, and return floats."""
    if symmetric:
        largest = builder.emit(op.max(op.abs(data), axes, keepdims=True))
        scale = _or_one(builder, largest, op.divide(largest, _number(127)))
        steps = op.clip(nearest(builder, builder.emit(op.divide(data, scale))), -127.0, 127.0)
        return builder.emit(op.multiply(steps, scale))
    low = builder.emit(op.minimum(op.min(data, axes, keepdims=True), _number(0)))
    high = builder.emit(op.maximum(op.max(data, axes, keepdims=True), _number(0)))
    span = builder.emit(op.subtract(high, low))
    scale = _or_one(builder, span, op.divide(span, _number(255)))
    zero = _zero(builder, builder.emit(op.divide(low, scale)), builder.emit(op.divide(high, scale)))
    inverse = builder.emit(op.divide(_number(1), scale))
    raised = builder.emit(op.add(op.multiply(data, inverse), zero))
    steps = op.clip(nearest(builder, raised), -128.0, 127.0)
    return builder.emit(op.multiply(op.subtract(steps, zero), scale))


def _zero(builder: Any, low: Any, high: Any) -> Any:
    """Return the zero point that the end of the range with the smaller error gives."""
    from_low = builder.emit(op.subtract(_number(-128), low))
    from_high = builder.emit(op.subtract(_number(127), high))
    nearer = op.less(op.add(op.abs(low), _number(128)), op.add(op.abs(high), _number(127)))
    chosen = builder.emit(op.where(nearer, from_low, from_high))
    return builder.emit(op.clip(nearest(builder, chosen), -128.0, 127.0))


def _or_one(builder: Any, span: Any, scale: Any) -> Any:
    return builder.emit(op.where(op.equal(span, _number(0)), _number(1), scale))


def nearest(builder: Any, value: Any) -> Any:
    """Round halves away from zero."""
    half = builder.emit(op.floor(op.add(op.abs(value), _number(0.5))))
    return builder.emit(op.multiply(op.sign(value), half))


def _number(value: float) -> Any:
    return relax.const(np.array(value, "float32"), "float32")
