"""Operators that TVM's converter lacks or knows only in part, each as a function of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tflite
from tvm import relax, te, tirx

from edgekit.models import arithmetic
from edgekit.models.onnx.values import as_expr, constant
from edgekit.models.tflite.conversion import Conversion

op = relax.op


class _Use:
    """One use of an operator: its operands and options."""

    def __init__(self, converter: Conversion, operator: tflite.Operator) -> None:
        self.converter, self.operator = converter, operator
        self.tensors = converter.get_input_tensors(operator)
        self.target = converter.get_output_tensors(operator)[0]

    def expr(self, place: int) -> Any:
        return self.converter.get_tensor_expr(self.tensors[place])

    def known(self, place: int) -> Any:
        return self.converter.get_tensor_value(self.tensors[place])

    def shape(self, place: int) -> list[int]:
        return [int(extent) for extent in self.converter.get_tensor_shape(self.tensors[place])]

    def options(self, kind: Any) -> Any:
        options, table = kind(), self.operator.BuiltinOptions()
        if table is not None:
            options.Init(table.Bytes, table.Pos)
        return options

    def emit(self, value: Any) -> Any:
        return self.converter.bb.emit(self.converter.bb.normalize(value))

    def computed(self, name: str, function: Callable[..., Any], *values: Any) -> Any:
        return self.converter.bb.emit_te(function, *values, primfunc_name_hint=name)

    def filled(self, shape: list[int], value: float, dtype: str) -> Any:
        return as_expr(np.full(shape, value, dtype))


def _atan2(use: _Use) -> Any:
    """Call C's function; TVM has none for every target."""
    first, second = (use.emit(op.astype(use.expr(place), "float32")) for place in (0, 1))
    found = arithmetic.arc_tangent(use.converter.bb, first, second)
    return op.astype(found, str(use.expr(0).ty.dtype))


def _xor(use: _Use) -> Any:
    return op.bitwise_xor(use.expr(0), use.expr(1))


def _right_shift(use: _Use) -> Any:
    """Shift by no less than nothing and no more than all bits but the sign."""
    value, amount = use.expr(0), use.expr(1)
    dtype = str(value.ty.dtype)
    bits = np.dtype(dtype).itemsize * 8
    low = op.maximum(amount, constant(0, dtype))
    return op.right_shift(value, use.emit(op.minimum(low, constant(bits - 1, dtype))))


def _argument(found: Callable[..., Any]) -> Callable[[_Use], Any]:
    def convert(use: _Use) -> Any:
        value = use.expr(0)
        if str(value.ty.dtype) == "bool":
            value = use.emit(op.astype(value, "int8"))
        result = found(value, int(use.known(1).item()), False)
        return op.astype(result, use.converter.get_tensor_type_str(use.target.tensor.Type()))

    return convert


def _cumulative_sum(use: _Use) -> Any:
    options, axis = use.options(tflite.CumsumOptions), int(use.known(1).item())
    value = use.expr(0)
    axis %= len(value.ty.shape)
    turned = use.emit(op.flip(value, axis)) if options.Reverse() else value
    total = op.cumsum(turned, axis, str(value.ty.dtype), bool(options.Exclusive()))
    return op.flip(use.emit(total), axis) if options.Reverse() else total


def _mirrored(use: _Use) -> Any:
    """Repeat the edge too in the symmetric mode."""
    before = [int(low) for low, _ in use.known(1).tolist()]
    after = [int(high) for _, high in use.known(1).tolist()]
    shape = use.shape(0)
    edge = int(use.options(tflite.MirrorPadOptions).Mode() == tflite.MirrorPadMode.REFLECT)
    indices = []
    for extent, low, high in zip(shape, before, after, strict=True):
        places = np.arange(-low, extent + high)
        places = np.where(places < 0, -places - 1 + edge, places)
        places = np.where(places >= extent, 2 * extent - 1 - edge - places, places)
        indices.append(places.astype("int64"))
    value = use.expr(0)
    for axis, places in enumerate(indices):
        if before[axis] or after[axis]:
            value = use.emit(op.take(value, as_expr(places), axis))
    return value


def _gathered(use: _Use) -> Any:
    """Take slices along an axis, for each of the leading batches apart."""
    options, shape = use.options(tflite.GatherOptions), use.shape(0)
    batches, axis = options.BatchDims(), options.Axis() % len(shape)
    taken = use.shape(1)[batches:]
    order = [*range(batches), axis, *range(batches, axis), *range(axis + 1, len(shape))]
    data = use.emit(op.permute_dims(use.expr(0), order))
    rest = [shape[place] for place in order[batches + 1 :]]
    data = use.emit(op.reshape(data, (-1, shape[axis], *rest)))
    wide = use.emit(op.astype(use.expr(1), "int64"))
    indices = op.reshape(wide, (-1, int(np.prod(taken)), 1))
    found = use.emit(op.gather_nd(data, use.emit(indices), batch_dims=1))
    moved = axis - batches
    found = use.emit(op.reshape(found, (*shape[:batches], *taken, *rest)))
    first, count = batches, len(taken)
    back = [
        *range(first),
        *range(first + count, first + count + moved),
        *range(first, first + count),
        *range(first + count + moved, first + count + len(rest)),
    ]
    return op.permute_dims(found, back)


def _lookup(use: _Use) -> Any:
    return op.take(use.expr(1), use.expr(0), 0)


def _reversed(use: _Use) -> Any:
    options = use.options(tflite.ReverseSequenceOptions)
    lengths = op.astype(use.expr(1), "int64")
    return op.reverse_sequence(use.expr(0), use.emit(lengths), options.SeqDim(), options.BatchDim())


def _scattered(use: _Use) -> Any:
    """Add values that go to one place."""
    updates = use.expr(1)
    begin = use.filled([int(extent) for extent in use.known(2)], 0, str(updates.ty.dtype))
    if str(updates.ty.dtype) == "bool":
        raise ValueError("it adds truths")
    return op.scatter_nd(begin, use.emit(op.astype(use.expr(0), "int64")), updates, "add")


_UPDATES: Mapping[str, tuple[str, float]] = {
    "SUM": ("add", 0),
    "PROD": ("mul", 1),
    "MAX": ("max", -np.inf),
    "MIN": ("min", np.inf),
}


def _segments(kind: str) -> Callable[[_Use], Any]:
    def convert(use: _Use) -> Any:
        update, value = _UPDATES[kind]
        shape, dtype = use.shape(0), str(use.expr(0).ty.dtype)
        if np.isinf(value):  # LiteRT begins with the ends of the type, for floats too.
            limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
            value = float(limits.min if kind == "MAX" else limits.max)
        is_sized = len(use.tensors) == 3
        count = int(use.known(2).item()) if is_sized else int(use.known(1).max()) + 1
        ranks = len(use.shape(1))
        indices = op.expand_dims(op.astype(use.expr(1), "int64"), [ranks])
        begin = as_expr(np.full([count, *shape[ranks:]], value, dtype))
        return op.scatter_nd(begin, use.emit(indices), use.expr(0), update)

    return convert


def _updated(use: _Use) -> Any:
    """Put a block into a tensor, moved so that it lies inside."""
    shape, block = use.shape(0), use.shape(1)

    def compute(data: te.Tensor, update: te.Tensor, start: te.Tensor) -> te.Tensor:
        def element(*index: Any) -> Any:
            begins = [
                tirx.max(tirx.min(start(axis), shape[axis] - block[axis]), 0)
                for axis in range(len(shape))
            ]
            apart = [place - begin for place, begin in zip(index, begins, strict=True)]
            inside = tirx.all(
                *(
                    tirx.And(each >= 0, each < extent)
                    for each, extent in zip(apart, block, strict=True)
                )
            )
            clipped = [
                tirx.max(tirx.min(each, extent - 1), 0)
                for each, extent in zip(apart, block, strict=True)
            ]
            return tirx.if_then_else(inside, update(*clipped), data(*index))

        return te.compute(shape, element)

    start = use.emit(op.astype(use.expr(2), "int64"))
    return use.computed("dynamic_update_slice", compute, use.expr(0), use.expr(1), start)


def _cut(use: _Use) -> Any:
    """Take a block of a known size from a computed place, moved so that it lies inside."""
    shape = use.shape(0)
    block = [int(extent) for extent in use.known(2)]
    if any(extent < 0 for extent in block):
        raise ValueError("the size of its output depends on the data")

    def compute(data: te.Tensor, start: te.Tensor) -> te.Tensor:
        def element(*index: Any) -> Any:
            begins = (
                tirx.max(tirx.min(start(axis), shape[axis] - block[axis]), 0)
                for axis in range(len(shape))
            )
            return data(*(place + begin for place, begin in zip(index, begins, strict=True)))

        return te.compute(block, element)

    start = use.emit(op.astype(use.expr(1), "int64"))
    return use.computed("slice", compute, use.expr(0), start)


def _diagonal(use: _Use) -> Any:
    """Put a vector on the diagonal of a matrix: of zeros, or of one that is given."""
    is_given = len(use.tensors) == 2
    *lead, length = use.shape(int(is_given))
    shape = use.shape(0) if is_given else [*lead, length, length]
    dtype = str(use.expr(0).ty.dtype)
    data = use.expr(0) if is_given else use.filled(shape, 0, dtype)

    def compute(matrix: te.Tensor, vector: te.Tensor) -> te.Tensor:
        return te.compute(
            shape,
            lambda *index: tirx.if_then_else(
                index[-1].equal(index[-2]),
                vector(*index[:-2], tirx.min(index[-1], length - 1)),
                matrix(*index),
            ),
        )

    return use.computed("matrix_diag", compute, data, use.expr(int(is_given)))


def _volume_convolution(use: _Use) -> Any:
    options = use.options(tflite.Conv3DOptions)
    strides = (options.StrideD(), options.StrideH(), options.StrideW())
    dilation = (
        options.DilationDFactor(),
        options.DilationHFactor(),
        options.DilationWFactor(),
    )
    padding = [0] * 6
    if options.Padding() == tflite.Padding.SAME:
        for axis in range(3):
            extent, size = use.shape(0)[1 + axis], use.shape(1)[axis]
            reach = dilation[axis] * (size - 1) + 1
            steps = -(-extent // strides[axis])
            missing = max(0, (steps - 1) * strides[axis] + reach - extent)
            padding[axis], padding[3 + axis] = missing // 2, missing - missing // 2
    result = op.nn.conv3d(use.expr(0), use.expr(1), strides, padding, dilation, 1, "NDHWC", "DHWIO")
    if len(use.tensors) > 2 and use.tensors[2].tensor_idx >= 0:
        result = op.add(result, use.expr(2))
    return use.converter.convert_fused_activation_function(
        use.emit(result), options.FusedActivationFunction()
    )


FURTHER: Mapping[str, Callable[[_Use], Any]] = {
    "ARG_MAX": _argument(op.argmax),
    "ARG_MIN": _argument(op.argmin),
    "ATAN2": _atan2,
    "BITWISE_XOR": _xor,
    "CONV_3D": _volume_convolution,
    "CUMSUM": _cumulative_sum,
    "DYNAMIC_UPDATE_SLICE": _updated,
    "EMBEDDING_LOOKUP": _lookup,
    "MATRIX_DIAG": _diagonal,
    "MATRIX_SET_DIAG": _diagonal,
    "MIRROR_PAD": _mirrored,
    "REVERSE_SEQUENCE": _reversed,
    "RIGHT_SHIFT": _right_shift,
    "SCATTER_ND": _scattered,
    "SEGMENT_SUM": _segments("SUM"),
    **{f"UNSORTED_SEGMENT_{kind}": _segments(kind) for kind in _UPDATES},
}


def converters(
    converter: Conversion, others: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return a converter for each of these operators, and for GATHER with batches and
    SLICE with a computed begin."""

    def made(name: str) -> Callable[..., Any]:
        return lambda op: FURTHER[name](_Use(converter, op))

    def gather(op: tflite.Operator) -> Any:
        use = _Use(converter, op)
        has_batches = use.options(tflite.GatherOptions).BatchDims() > 0
        return _gathered(use) if has_batches else others["GATHER"](op=op)

    def cut(op: tflite.Operator) -> Any:
        use = _Use(converter, op)
        is_computed = converter.has_expr(use.tensors[1].tensor_idx)
        return _cut(use) if is_computed else others["SLICE"](op=op)

    return {**{name: made(name) for name in FURTHER}, "GATHER": gather, "SLICE": cut}
