"""Moves and fills buffers: what stands beyond the end of a dimension, and where a tensor begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from edgekit.base.arrays import Array
from edgekit.models.onnx.lengths.extents import Size, largest, same
from edgekit.models.onnx.lengths.values import Value
from edgekit.models.onnx.lengths.writer import BOOL, Writer


def numpy_type(element: int) -> Any:
    return helper.tensor_dtype_to_np_dtype(element)


def lowest(element: int) -> Any:
    """Return the smallest number of a type; -inf for floats."""
    dtype = numpy_type(element)
    if element == BOOL:
        return False
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def highest(element: int) -> Any:
    dtype = numpy_type(element)
    if element == BOOL:
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf


def masked(writer: Writer, value: Value, axes: Iterable[int], fill: Any = 0) -> Value:
    """Fill what lies beyond the end of the dimensions; a `Value` as fill is a scalar tensor."""
    is_zero = not isinstance(fill, Value) and fill == 0
    wanted = [axis for axis in axes if axis in value.padded]
    axes = [axis for axis in wanted if not (is_zero and axis in value.zeros)]
    if not axes:
        return value
    mask = _mask(writer, value, axes)
    if isinstance(fill, Value):
        made = writer.emit("Where", mask, value, fill)
    elif value.element == BOOL:
        if fill:
            inverse = writer.once(("not", mask.name), lambda: writer.emit("Not", mask))
            made = writer.emit("Or", value, inverse)
        else:
            made = writer.emit("And", value, mask)
    else:
        number = writer.constant(fill, numpy_type(value.element))
        key = ("masked", writer.named(value), tuple(axes), number)
        made = writer.once(key, lambda: writer.emit("Where", mask, value, number))
    zeros = frozenset(wanted) if is_zero else frozenset()
    return replace(made, shape=value.shape, buffer=value.buffer, zeros=zeros)


def _mask(writer: Writer, value: Value, axes: Sequence[int]) -> Value:
    """Return bools that broadcast over the buffer: whether a place lies within the dimensions."""
    parts = [
        (value.sizes[axis], value.buffer[axis], value.rank - 1 - axis) for axis in sorted(axes)
    ]

    def one(size: Size, room: int, behind: int) -> Value:
        valid = writer.valid(size, room)
        if not behind:
            return valid
        shape = writer.constant([room] + [1] * behind)
        key = ("mask", valid.name, behind)
        return writer.once(key, lambda: writer.emit("Reshape", valid, shape))

    mask = one(*parts[0])
    for part in parts[1:]:
        first, second = mask, one(*part)
        mask = writer.once(
            ("and", first.name, second.name),
            lambda a=first, b=second: writer.emit("And", a, b),
        )
    return mask


def fitted(writer: Writer, value: Value, axis: int, room: int) -> Value:
    """Give the buffer another size along a dimension, which holds the tensor."""
    if value.buffer[axis] == room:
        return value
    buffer = (*value.buffer[:axis], room, *value.buffer[axis + 1 :])
    zeros = value.zeros
    if value.buffer[axis] > room:
        bounds = (writer.constant([number]) for number in (0, room, axis))
        made = writer.emit("Slice", value, *bounds)
    else:
        pads = [0] * (2 * value.rank)
        pads[value.rank + axis] = room - value.buffer[axis]
        if value.element == BOOL:  # Pad takes no bools in older operator sets.
            extra = np.zeros([1] * value.rank, bool)
            shape = [*buffer]
            shape[axis] = room - value.buffer[axis]
            more = writer.emit("Expand", writer.constant(extra, bool), writer.constant(shape))
            made = writer.emit("Concat", value, more, axis=axis)
        else:
            made = writer.emit("Pad", value, writer.constant(pads))
    if axis not in value.padded and room > value.buffer[axis]:
        zeros |= {axis}
    return replace(made, shape=value.shape, buffer=buffer, zeros=zeros)


def tight(writer: Writer, value: Value) -> Value:
    """Cut the buffer where it is larger than the largest tensor."""
    for axis, size in enumerate(value.sizes):
        room = max(largest(size), 0)
        if room < value.buffer[axis]:
            value = fitted(writer, value, axis, room)
    return value


def gathered(writer: Writer, value: Value, axis: int, places: Value, size: Size) -> Value:
    """Take the slices at computed places, which lie inside the buffer, as a new dimension."""
    made = writer.emit("Gather", value, places, axis=axis)
    room = places.buffer[0]
    return replace(
        made,
        shape=(*value.sizes[:axis], size, *value.sizes[axis + 1 :]),
        buffer=(*value.buffer[:axis], room, *value.buffer[axis + 1 :]),
        zeros=value.zeros - {axis},
    )


def clamped(writer: Writer, places: Value, room: int) -> Value:
    """Keep places within a buffer: those beyond the tensor's end read something, not nothing."""
    low, high = writer.constant(0), writer.constant(max(room - 1, 0))
    return writer.emit("Min", writer.emit("Max", places, low), high)


def counted(writer: Writer, room: int) -> Value:
    """Return the numbers from 0 to below `room`."""
    return writer.constant(np.arange(room))


def shifted(writer: Writer, value: Value, axis: int, start: Size, size: Size, step: int) -> Value:
    """Return the slices from `start` on, `size` of them; places outside hold anything."""
    room = max(largest(size), 0)
    if isinstance(start, int) and step == 1 and start >= 0:
        if start == 0 and room <= value.buffer[axis]:
            return _resized(writer, fitted(writer, value, axis, room), axis, size)
        if start + room <= value.buffer[axis]:
            bounds = (writer.constant([number]) for number in (start, start + room, axis))
            made = writer.emit("Slice", value, *bounds)
            made = replace(
                made,
                shape=value.shape,
                buffer=(*value.buffer[:axis], room, *value.buffer[axis + 1 :]),
                zeros=value.zeros,
            )
            return _resized(writer, made, axis, size)
    places = writer.constant(np.arange(room) * step)
    places = writer.emit("Add", places, writer.length(start))
    places = clamped(writer, places, value.buffer[axis])
    return gathered(writer, value, axis, places, size)


def _resized(writer: Writer, value: Value, axis: int, size: Size) -> Value:
    """Say that a dimension has another size; what lies beyond it is no zeros any more."""
    if value.sizes[axis] == size:
        return value
    kept = value.zeros if same(value.sizes[axis], size) else value.zeros - {axis}
    shape = (*value.sizes[:axis], size, *value.sizes[axis + 1 :])
    return replace(value, name=writer.named(value), shape=shape, zeros=kept, content=None)


def scalar(writer: Writer, number: Any, like: Value) -> Value:
    """Return a constant of another value's type."""
    return writer.constant(number, numpy_type(like.element))


def is_finite(content: Array | None) -> bool:
    """Tell whether a content is known, and finite numbers."""
    if content is None or content.dtype == object:
        return False
    return bool(np.all(np.isfinite(content.astype(np.float64))))


def room_of(size: Size) -> int:
    """Return the largest value of a size."""
    return max(largest(size), 0)


def framed(
    writer: Writer, value: Value, axis: int, before: Size, behind: Size, fill: Any = 0
) -> Value:
    """Add a number before and behind a dimension, where that many places varies."""
    size = value.sizes[axis] + before + behind
    moved = shifted(writer, value, axis, -1 * before, size, 1)
    places = counted(writer, moved.buffer[axis])
    first, end = writer.length(before), writer.length(value.sizes[axis] + before)
    inside = writer.emit(
        "And", writer.emit("Less", places, end), writer.emit("GreaterOrEqual", places, first)
    )
    shape = writer.constant([moved.buffer[axis]] + [1] * (value.rank - 1 - axis))
    number = fill if isinstance(fill, Value) else scalar(writer, fill, value)
    made = writer.emit("Where", writer.emit("Reshape", inside, shape), moved, number)
    zeros = moved.zeros | ({axis} if not isinstance(fill, Value) and fill == 0 else set())
    return replace(made, shape=moved.shape, buffer=moved.buffer, zeros=frozenset(zeros))
