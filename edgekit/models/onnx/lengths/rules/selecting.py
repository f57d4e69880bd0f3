"""Operators whose output has a size that data decides: a buffer, and a length that is counted.

All but NonMaxSuppression are made of one operator of edgekit's, `Places`, and of ONNX's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Length, Size, largest, of_length
from edgekit.models.onnx.lengths.step import Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value
from edgekit.models.onnx.lengths.writer import BOOL, INT64, Operand, Writer

DOMAIN = "edgekit"


def counted(writer: Writer, scalar: Value, smallest: int, most: int) -> Size:
    """Return the length that a scalar of the program holds."""
    length = Length(writer.fresh("count"), smallest, most)
    writer.place(length, scalar)
    return of_length(length)


def _own(
    writer: Writer,
    operator: str,
    inputs: list[Operand],
    shape: tuple[int, ...],
    **attributes: Any,
) -> tuple[Value, Value]:
    """Write an operator of edgekit's; return its result, of int64, and its count."""
    made = writer.several(operator, *inputs, outputs=2, domain=DOMAIN, **attributes)
    found = [
        replace(one, element=INT64, shape=extents, buffer=extents)
        for one, extents in zip(made, (shape, ()), strict=True)
    ]
    writer.values.update({one.name: one for one in found})
    return found[0], found[1]


def _places(writer: Writer, mask: Value, most: Size, smallest: int = 0) -> tuple[Value, Size]:
    """Return the places of a vector's true elements, and their number."""
    (room,) = mask.buffer
    places, count = _own(writer, "Places", [mask], (room,))
    return places, counted(writer, count, smallest, min(room, largest(most)))


def _selected(writer: Writer, value: Value, axis: int, places: Value, size: Size) -> Value:
    """Take slices; no place is outside of the buffer."""
    return buffers.tight(writer, buffers.gathered(writer, value, axis, places, size))


def _non_zero(step: Step) -> Value:
    writer, value = step.writer, step.value()
    if not value.rank:
        raise UnfixedError("its input is a scalar")
    mask = value if value.element == BOOL else writer.emit("Cast", value, to=BOOL)
    mask = replace(mask, shape=value.shape, buffer=value.buffer, zeros=frozenset())
    mask = buffers.masked(writer, mask, range(value.rank), False)
    room = math.prod(value.buffer)
    flat = writer.emit("Reshape", mask, writer.constant([room]))
    places, size = _places(writer, flat, math.prod(value.sizes, start=1))
    if value.rank > 1:
        strides = [math.prod(value.buffer[axis + 1 :]) for axis in range(value.rank)]
        column = [value.rank, 1]
        rows = writer.emit("Div", places, writer.constant(np.reshape(strides, column)))
        places = writer.emit("Mod", rows, writer.constant(np.reshape(value.buffer, column)))
    else:
        places = writer.emit("Reshape", places, writer.constant([1, room]))
    return _resized(writer, places, (value.rank, size))


def _resized(writer: Writer, value: Value, shape: tuple[Size, ...]) -> Value:
    found = replace(value, shape=shape, zeros=frozenset())
    writer.values[found.name] = found
    return buffers.tight(writer, found)


def _compress(step: Step) -> Value:
    writer, value, condition = step.writer, step.value(0), step.value(1)
    axis = step.get("axis")
    if axis is None:
        if value.padded:
            raise UnfixedError("it flattens a tensor whose size varies")
        room = math.prod(value.buffer)
        value, axis = writer.emit("Reshape", value, writer.constant([room])), 0
    axis = int(axis) % value.rank
    condition = buffers.masked(writer, condition, [0], False)
    room = min(condition.buffer[0], value.buffer[axis])
    condition = buffers.fitted(writer, replace(condition, shape=condition.buffer), 0, room)
    places, size = _places(writer, condition, value.sizes[axis])
    return _selected(writer, value, axis, places, size)


def _top_k(step: Step) -> list[Value]:
    """Sort the whole dimension, of which as many elements count as the second input says."""
    writer, value, wanted = step.writer, step.value(0), step.value(1)
    axis = step.axis(-1, value.rank)
    room, size = value.buffer[axis], value.sizes[axis]
    falls = bool(step.get("largest", 1))
    end = (buffers.lowest if falls else buffers.highest)(value.element)
    value = buffers.masked(writer, value, [axis], end)
    made = writer.several(
        "TopK",
        value,
        writer.constant([room]),
        outputs=2,
        axis=axis,
        largest=int(falls),
        sorted=1,
    )
    scalar = writer.emit("Reshape", wanted, writer.constant(np.zeros(0)))
    if scalar.element != INT64:
        scalar = writer.emit("Cast", scalar, to=INT64)
    zero = writer.constant(0)
    scalar = writer.emit("Max", writer.emit("Min", scalar, writer.length(size)), zero)
    count = counted(writer, scalar, 0, largest(size))
    shape = (*value.sizes[:axis], count, *value.sizes[axis + 1 :])
    elements = (value.element, INT64)
    return [
        _resized(writer, replace(one, element=element, buffer=value.buffer), shape)
        for one, element in zip(made, elements, strict=True)
    ]


def _unique(step: Step) -> list[Value]:
    """Sort, mark what differs from its neighbour, and number the groups."""
    writer, value = step.writer, step.value()
    axis = step.get("axis")
    if value.padded:
        raise UnfixedError("its input varies in size")
    if axis is None:
        length = math.prod(value.buffer)
        rows = writer.emit("Reshape", value, writer.constant([length, 1]))
        value, axis = writer.emit("Reshape", value, writer.constant([length])), 0
    else:
        axis = int(axis) % value.rank
        length = value.buffer[axis]
        order = [axis, *(k for k in range(value.rank) if k != axis)]
        turned = writer.emit("Transpose", value, perm=order)
        rows = writer.emit("Reshape", turned, writer.constant([length, -1]))
    if length == 0 or rows.buffer[1] > _WIDEST:
        raise UnfixedError(f"it compares slices of {rows.buffer[1]} elements")
    order_of = _sorted_rows(writer, rows)
    lines = writer.emit("Gather", rows, order_of, axis=0)
    starts = _begins(writer, lines, length)
    group = writer.emit(
        "Sub",
        writer.emit("CumSum", writer.emit("Cast", starts, to=INT64), writer.constant(0)),
        writer.constant(1),
    )
    places, size = _places(writer, starts, length, smallest=1)
    firsts = writer.emit("Gather", order_of, places, axis=0)
    ends = _shifted_left(writer, places, length)
    ends = writer.emit("Where", _last(writer, size, length), writer.constant(length), ends)
    counts = writer.emit("Sub", ends, places)
    if not step.get("sorted", 1):
        # Groups in the order in which their first elements stand in the input.
        beyond = writer.emit(
            "Where", writer.valid(size, length), firsts, writer.constant(np.iinfo(np.int64).max)
        )
        turn = _ascending(writer, beyond, length)
        rank = writer.emit(
            "ScatterElements",
            writer.constant(np.zeros(length)),
            turn,
            writer.constant(np.arange(length)),
            axis=0,
        )
        firsts, counts = (writer.emit("Gather", one, turn, axis=0) for one in (firsts, counts))
        group = writer.emit("Gather", rank, group, axis=0)
    inverse = writer.emit(
        "ScatterElements", writer.constant(np.zeros(length)), order_of, group, axis=0
    )
    found = _selected(writer, value, axis, firsts, size)
    return [
        found,
        _resized(writer, firsts, (size,)),
        inverse,
        _resized(writer, counts, (size,)),
    ]


_WIDEST = 64
"""The most elements of a slice: each takes a sort of its own."""


def _sorted_rows(writer: Writer, rows: Value) -> Value:
    """Return the order of rows by their elements, the first of equal ones first: sorted by the last
    column, then, keeping that order, by the one before it."""
    length, width = rows.buffer
    order: Value | None = None
    for column in reversed(range(width)):
        place = writer.constant(column)
        keys = writer.emit("Gather", rows, place, axis=1)
        if order is not None:
            keys = writer.emit("Gather", keys, order, axis=0)
        turn = _ascending(writer, keys, length)
        order = turn if order is None else writer.emit("Gather", order, turn, axis=0)
    assert order is not None
    return order


def _ascending(writer: Writer, keys: Value, length: int) -> Value:
    if keys.element == BOOL or keys.element == int(TensorProto.INT8):
        keys = writer.emit("Cast", keys, to=INT64)
    made = writer.several("TopK", keys, writer.constant([length]), outputs=2, axis=0, largest=0)
    return made[1]


def _begins(writer: Writer, lines: Value, length: int) -> Value:
    """Return whether each sorted row differs from the one before it; the first does."""
    first = writer.constant([True], bool)
    if length == 1:
        return first
    upper, lower = (
        writer.emit("Slice", lines, *(writer.constant([k]) for k in (start, end, 0)))
        for start, end in ((0, length - 1), (1, length))
    )
    differs = writer.emit("Not", writer.emit("Equal", upper, lower))
    whole = writer.emit(
        "ReduceMax",
        writer.emit("Cast", differs, to=int(TensorProto.INT32)),
        *([writer.constant([1])] if writer.opset >= 18 else []),
        axes=None if writer.opset >= 18 else [1],
        keepdims=0,
    )
    return writer.emit("Concat", first, writer.emit("Cast", whole, to=BOOL), axis=0)


def _shifted_left(writer: Writer, places: Value, length: int) -> Value:
    following = writer.constant(np.minimum(np.arange(1, length + 1), length - 1))
    return writer.emit("Gather", places, following, axis=0)


def _last(writer: Writer, size: Size, length: int) -> Value:
    """Return whether each place is that of the last group."""
    ones = writer.emit("Sub", writer.length(size), writer.constant(1))
    return writer.emit("Equal", writer.constant(np.arange(length)), ones)


def _boxes(step: Step) -> Value:
    writer, boxes, scores = step.writer, step.value(0), step.value(1)
    for position, axes in ((0, (0, 2)), (1, (0, 1))):
        step.fixed_at(position, axes, "and boxes are kept for each of its places")
    batches, classes, room = scores.buffer
    boxes = buffers.fitted(writer, boxes, 1, room)
    number = writer.length(scores.sizes[2])
    most = room
    if step.has(2):
        wanted = step.value(2)
        if wanted.content is not None:
            most = min(room, largest(_number(wanted)))
    else:
        most = 0
    given: list[Operand] = [boxes, scores]
    given += [step.value(place) if step.has(place) else None for place in (2, 3, 4)]
    centered = int(step.get("center_point_box", 0))
    rows = batches * classes * max(most, 0)
    if rows == 0:
        raise UnfixedError("it keeps no box")
    found, count = _own(
        writer,
        "BoxesKept",
        [*given, number],
        (rows, 3),
        most=most,
        center_point_box=centered,
    )
    return _resized(writer, found, (counted(writer, count, 0, rows), 3))


def _number(value: Value) -> Size:
    assert value.content is not None
    found = value.content.reshape(-1)[0]
    return found if value.is_symbolic else max(int(found), 0)


SELECTING: Mapping[tuple[str, str], tuple[Callable[[Step], Value | list[Value]], int]] = {
    ("", "Compress"): (_compress, 1),
    ("", "NonMaxSuppression"): (_boxes, -1),
    ("", "NonZero"): (_non_zero, -1),
    ("", "TopK"): (_top_k, 1),
    ("", "Unique"): (_unique, -1),
}
"""The rule for each operator, and the input that decides the size where it is no constant; -1 where
any does."""


def selects(step: Step, key: tuple[str, str]) -> bool:
    """Return whether data decides the size of a node's output."""
    _, place = SELECTING.get(key, (None, None))
    if place is None:
        return False
    return place < 0 or not step.has(place) or step.value(place).content is None
