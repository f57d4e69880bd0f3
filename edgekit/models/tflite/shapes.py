"""Compute the small graphs that produce shapes at import.

Converters write SHAPE, STRIDED_SLICE and PACK in front of a RESHAPE to keep the batch open. Once
every shape is known these are constants, and Relax wants them as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tflite

from edgekit.base.arrays import Array

Fold = Callable[[tflite.Operator, Sequence[Array]], Array]

MAX_FOLDED_ELEMENTS = 4096
"""The most elements to fold: shapes are short, and longer tensors are data."""

OUTPUT_TYPES = {tflite.TensorType.INT32: np.int32, tflite.TensorType.INT64: np.int64}


def fold_shape(operator: tflite.Operator, shape: Sequence[int]) -> Array:
    """Fold SHAPE of a tensor with a known shape."""
    out_type = _options(operator, tflite.ShapeOptions).OutType()
    return np.array(shape, OUTPUT_TYPES.get(out_type, np.int32))


def fold(name: str, operator: tflite.Operator, values: Sequence[Array]) -> Array | None:
    """Return the operator's value on constants; None for operators that do not occur in shapes."""
    if name not in FOLDS or any(value.size > MAX_FOLDED_ELEMENTS for value in values):
        return None
    if any(value.dtype.kind not in "ib" for value in values):  # Arithmetic on data may be fused.
        return None
    result = FOLDS[name](operator, values)
    return result if result.size <= MAX_FOLDED_ELEMENTS else None


def _options(operator: tflite.Operator, kind: Any) -> Any:
    options = kind()
    table = operator.BuiltinOptions()
    if table is not None:
        options.Init(table.Bytes, table.Pos)
    return options


def _strided_slice(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    data, begin, end, strides = values
    options = _options(operator, tflite.StridedSliceOptions)
    if options.EllipsisMask() or options.NewAxisMask():
        raise ValueError("an ellipsis or a new axis in a slice of a shape is not supported")
    index: list[slice | int] = []
    for axis in range(len(begin)):
        bit = 1 << axis
        if options.ShrinkAxisMask() & bit:
            index.append(int(begin[axis]))
            continue
        first = None if options.BeginMask() & bit else int(begin[axis])
        last = None if options.EndMask() & bit else int(end[axis])
        index.append(slice(first, last, int(strides[axis])))
    return np.asarray(data[tuple(index)])


def _slice(_: tflite.Operator, values: Sequence[Array]) -> Array:
    data, begin, size = values
    index = tuple(
        slice(int(b), None if s == -1 else int(b) + int(s))
        for b, s in zip(begin, size, strict=True)
    )
    return np.asarray(data[index])


def _pack(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    return np.stack(list(values), _options(operator, tflite.PackOptions).Axis())


def _concatenation(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    return np.concatenate(list(values), _options(operator, tflite.ConcatenationOptions).Axis())


def _gather(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    axis = _options(operator, tflite.GatherOptions).Axis()
    return np.asarray(np.take(values[0], values[1], axis))


def _cast(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    out_type = _options(operator, tflite.CastOptions).OutDataType()
    return values[0].astype(OUTPUT_TYPES.get(out_type, values[0].dtype))


def _reduce_prod(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    keep = bool(_options(operator, tflite.ReducerOptions).KeepDims())
    axes = tuple(int(axis) for axis in np.atleast_1d(values[1]))
    product = np.prod(values[0], axis=axes, keepdims=keep, dtype=values[0].dtype)
    return np.asarray(product)


def _reshape(_: tflite.Operator, values: Sequence[Array]) -> Array:
    return values[0].reshape([int(extent) for extent in values[1]])


def _squeeze(operator: tflite.Operator, values: Sequence[Array]) -> Array:
    options = _options(operator, tflite.SqueezeOptions)
    axes = tuple(int(options.SqueezeDims(i)) for i in range(options.SqueezeDimsLength()))
    return np.squeeze(values[0], axes or None)


def _expand_dims(_: tflite.Operator, values: Sequence[Array]) -> Array:
    return np.expand_dims(values[0], int(values[1].item()))


FOLDS: dict[str, Fold] = {
    "ADD": lambda _, v: np.asarray(v[0] + v[1]),
    "CAST": _cast,
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _expand_dims,
    "EQUAL": lambda _, v: np.asarray(v[0] == v[1]),
    "FLOOR_DIV": lambda _, v: np.asarray(v[0] // v[1]),
    "GATHER": _gather,
    "GREATER": lambda _, v: np.asarray(v[0] > v[1]),
    "GREATER_EQUAL": lambda _, v: np.asarray(v[0] >= v[1]),
    "LESS": lambda _, v: np.asarray(v[0] < v[1]),
    "LESS_EQUAL": lambda _, v: np.asarray(v[0] <= v[1]),
    "LOGICAL_AND": lambda _, v: np.logical_and(v[0], v[1]),
    "LOGICAL_NOT": lambda _, v: np.logical_not(v[0]),
    "LOGICAL_OR": lambda _, v: np.logical_or(v[0], v[1]),
    "MAXIMUM": lambda _, v: np.maximum(v[0], v[1]),
    "MINIMUM": lambda _, v: np.minimum(v[0], v[1]),
    "MUL": lambda _, v: np.asarray(v[0] * v[1]),
    "NOT_EQUAL": lambda _, v: np.asarray(v[0] != v[1]),
    "PACK": _pack,
    "REDUCE_PROD": _reduce_prod,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "SUB": lambda _, v: np.asarray(v[0] - v[1]),
}
