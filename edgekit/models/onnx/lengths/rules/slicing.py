"""Operators that take parts of a tensor, and those that put parts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, decided, divided, larger, same, smaller
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value
from edgekit.models.onnx.lengths.writer import Writer

_FAR = 1 << 30
"""A bound that means the end, or the start if it is negative."""


def _slice(step: Step) -> Value:
    value = step.value()
    starts, ends = step.content(1), step.content(2)
    axes = step.integers(3) if step.has(3) else list(range(len(starts)))
    strides = step.integers(4) if step.has(4) else [1] * len(starts)
    for start, end, axis, stride in zip(starts, ends, axes, strides, strict=True):
        axis %= value.rank
        size = value.sizes[axis]
        first = _bound(start, size, 0 if stride > 0 else -1)
        last = _bound(end, size, 0 if stride > 0 else -1)
        reach = last - first if stride > 0 else first - last
        count = larger(divided(reach + abs(stride) - 1, abs(stride)), 0)
        value = buffers.shifted(step.writer, value, axis, first, count, stride)
    return value


def _bound(place: Size, size: Size, low: int) -> Size:
    """Return where a slice begins or ends, between `low` and the dimension's end."""
    if isinstance(place, int) and abs(place) >= _FAR:
        return size + low if place > 0 else low
    sign = decided("<", place, 0)
    if sign is None:
        raise UnfixedError(f"it slices from {place}, which may count from the end or the start")
    if sign:
        place = place + size
    return larger(smaller(place, size + low), low)


def _split(step: Step) -> list[Value]:
    value = step.value()
    axis = step.axis(0, value.rank)
    size, count = value.sizes[axis], len(step.outputs)
    if step.has(1):
        sizes = step.content(1)
    else:
        share = divided(size + (count - 1 if step.get("num_outputs") else 0), count)
        sizes = [share] * (count - 1) + [size - (count - 1) * share]
    start: Size = 0
    parts = []
    for part in sizes:
        parts.append(buffers.shifted(step.writer, value, axis, start, part, 1))
        start = start + part
    return parts


def joined(writer: Writer, values: Sequence[Value], axis: int) -> Value:
    """Put tensors behind each other; their other dimensions are equal."""
    values = [buffers.tight(writer, value) for value in values]
    axis %= values[0].rank
    for other in range(values[0].rank):
        if other == axis:
            continue
        sizes = [value.sizes[other] for value in values]
        if not all(same(sizes[0], size) for size in sizes):
            others = ", ".join(map(str, sizes[1:]))
            raise UnfixedError(f"it joins a dimension of {sizes[0]} with others of {others}")
        room = min(value.buffer[other] for value in values)
        values = [buffers.fitted(writer, value, other, room) for value in values]
    total: Size = 0
    starts, gaps = [], []
    for value in values:
        starts.append(total)
        gaps.append(value.buffer[axis] - value.sizes[axis])
        total = total + value.sizes[axis]
    made = writer.emit("Concat", *values, axis=axis) if len(values) > 1 else values[0]
    room = sum(value.buffer[axis] for value in values)
    first = values[0]
    zeros = frozenset.intersection(*(value.zeros for value in values)) - {axis}
    if axis in values[-1].zeros:
        zeros |= {axis}
    made = replace(
        made,
        shape=(*first.sizes[:axis], total, *first.sizes[axis + 1 :]),
        buffer=(*first.buffer[:axis], room, *first.buffer[axis + 1 :]),
        zeros=zeros,
    )
    if all(gap == 0 for gap in gaps[:-1]):
        return made

    def places() -> Value:
        numbers = buffers.counted(writer, buffers.room_of(total))
        found = numbers
        for start, gap in zip(starts[1:], gaps[:-1], strict=True):
            if gap == 0:
                continue
            behind = writer.emit("GreaterOrEqual", numbers, writer.length(start))
            skip = writer.emit("Where", behind, writer.length(gap), writer.constant(0))
            found = writer.emit("Add", found, skip)
        return buffers.clamped(writer, found, room)

    key = ("joined", tuple(starts), tuple(gaps))
    return buffers.gathered(writer, made, axis, writer.once(key, places), total)


def _concat(step: Step) -> Value:
    values = [step.value(i) for i in range(len(step.inputs))]
    if len({value.rank for value in values}) > 1:
        raise UnfixedError("its inputs differ in rank")
    return joined(step.writer, values, int(step.get("axis")))


def _pad(step: Step) -> Value:
    value, writer = step.value(), step.writer
    amounts = step.content(1)
    axes = step.integers(3) if step.has(3) else list(range(value.rank))
    fill: Value | float = step.value(2) if step.has(2) else 0
    if isinstance(fill, Value) and fill.rank:
        fill = writer.emit("Reshape", fill, writer.constant([], "int64"))
    mode = step.get("mode", "constant")
    static = [0] * (2 * value.rank)
    shape = list(value.sizes)
    for i, axis in enumerate(axes):
        axis %= value.rank
        before, behind = amounts[i], amounts[len(axes) + i]
        if before == 0 and behind == 0:
            continue
        if _is_fixed(before, behind) and (mode == "constant" or axis not in value.padded):
            static[axis], static[value.rank + axis] = int(str(before)), int(str(behind))
            if mode == "constant":
                value = buffers.masked(writer, value, [axis], fill)
        elif mode == "constant":
            value = buffers.framed(writer, value, axis, before, behind, fill)
        else:
            value = _continued(writer, value, axis, before, behind, mode)
        shape[axis] = shape[axis] + before + behind
    if not any(static):
        return value
    zeros = (
        value.zeros
        if isinstance(fill, int | float) and mode == "constant"
        else value.zeros
        - {axis for axis in range(value.rank) if static[axis] or static[value.rank + axis]}
    )
    given = [fill] if isinstance(fill, Value) else []
    made = writer.emit("Pad", value, writer.constant(static), *given, mode=mode)
    return step.shaped(made, shape, zeros)


def _is_fixed(*amounts: Size) -> bool:
    return all(isinstance(amount, int) and amount >= 0 for amount in amounts)


def _continued(
    writer: Writer, value: Value, axis: int, before: Size, behind: Size, mode: str
) -> Value:
    """Pad a dimension with its own elements."""
    size = value.sizes[axis]
    total = size + before + behind
    places = buffers.counted(writer, buffers.room_of(total))
    places = writer.emit("Sub", places, writer.length(before))
    last = writer.length(size - 1)
    if mode == "reflect":
        places = writer.emit("Abs", places)
        places = writer.emit("Sub", last, writer.emit("Abs", writer.emit("Sub", last, places)))
    elif mode == "wrap":
        length = writer.length(larger(size, 1))
        places = writer.emit("Mod", places, length)
    else:
        places = writer.emit("Min", places, last)
    places = buffers.clamped(writer, places, value.buffer[axis])
    return buffers.gathered(writer, value, axis, places, total)


def counted_from_start(
    writer: Writer, places: Value, sizes: Sequence[Size], fill: int | Value = 0
) -> Value:
    """Return indices without negative ones, and with none beyond the end of their own dimensions.

    With several sizes, each index is a vector along the last dimension.
    """
    if places.content is not None and len(sizes) == 1:
        flat = [
            item + sizes[0] if decided("<", item, 0) else item
            for item in places.content.reshape(-1).tolist()
        ]
        if all(decided("<", item, 0) is False for item in flat):
            content = np.empty(len(flat), object)
            content[:] = flat
            whole = all(isinstance(item, int) for item in flat)
            content = content.astype(np.int64) if whole else content
            return Value(
                "",
                writer.constant(0).element,
                places.shape,
                places.buffer,
                content=content.reshape(places.content.shape),
            )
    if places.element != writer.constant(0).element:
        wide = writer.emit("Cast", places, to=writer.constant(0).element)
        places = replace(wide, shape=places.shape, buffer=places.buffer, zeros=places.zeros)
    shape, buffer = places.sizes, places.buffer
    moves = isinstance(fill, Value)  # What scatters has room behind the end.
    if moves or not all(isinstance(size, int) for size in sizes):
        parts = [writer.length(size) for size in sizes]
        if len(parts) > 1:
            one = writer.constant([1])
            ends = writer.emit("Concat", *(writer.emit("Reshape", p, one) for p in parts), axis=0)
        else:
            ends = parts[0]
        negative = writer.emit("Less", places, writer.constant(0))
        places = writer.emit("Where", negative, writer.emit("Add", places, ends), places)
        places = replace(places, shape=shape, buffer=buffer)
    return buffers.masked(writer, places, range(len(buffer)), fill)


def _gather(step: Step) -> Value:
    value, writer = step.value(), step.writer
    axis = step.axis(0, value.rank)
    places = counted_from_start(writer, step.value(1), [value.sizes[axis]])
    made = step.again(value, places)[0]
    more = places.rank - 1
    zeros = {z if z < axis else z + more for z in value.zeros if z != axis}
    return step.shaped(
        made, (*value.sizes[:axis], *places.sizes, *value.sizes[axis + 1 :]), frozenset(zeros)
    )


def _gather_elements(step: Step) -> Value:
    value, writer = step.value(), step.writer
    axis = step.axis(0, value.rank)
    places = counted_from_start(writer, step.value(1), [value.sizes[axis]])
    for other in range(value.rank):
        if other != axis and places.buffer[other] > value.buffer[other]:
            places = buffers.fitted(writer, places, other, value.buffer[other])
    return step.shaped(step.again(value, places)[0], places.sizes)


def _gather_nd(step: Step) -> Value:
    value, writer, batch = step.value(), step.writer, int(step.get("batch_dims", 0))
    places = step.value(1)
    count = places.sizes[-1]
    if not isinstance(count, int):
        raise UnfixedError("the rank of its indices varies")
    places = counted_from_start(writer, places, value.sizes[batch : batch + count])
    for axis in range(batch):
        if not same(value.sizes[axis], places.sizes[axis]):
            raise UnfixedError("its batches differ in size")
        room = min(value.buffer[axis], places.buffer[axis])
        value = buffers.fitted(writer, value, axis, room)
        places = buffers.fitted(writer, places, axis, room)
    shape = (*places.sizes[:-1], *value.sizes[batch + count :])
    return step.shaped(step.again(value, places)[0], shape)


def _scatter_elements(step: Step) -> Value:
    value, rest = step.value(), step.value(2)
    axis = step.axis(0, value.rank)
    return _scattered(step, value, axis, [value.sizes[axis]], rest)


def _scatter_nd(step: Step) -> Value:
    value = step.value()
    count = step.value(1).sizes[-1]
    if not isinstance(count, int):
        raise UnfixedError("the rank of its indices varies")
    return _scattered(step, value, 0, list(value.sizes[:count]), step.value(2))


def _scattered(step: Step, value: Value, axis: int, sizes: Sequence[Size], updates: Value) -> Value:
    """Scatter with one more slice, which takes what lies beyond the end of the indices."""
    writer, given = step.writer, step.value(1)
    room, shape = value.buffer[axis], value.sizes
    is_vector = step.node.op_type == "ScatterND"
    if given.padded:
        value = buffers.fitted(writer, replace(value, shape=value.buffer), axis, room + 1)
    nowhere = writer.constant([room] + [0] * (len(sizes) - 1) if is_vector else room)
    places = counted_from_start(writer, given, sizes, nowhere)
    others = range(given.rank - is_vector)
    if not all(same(given.sizes[other], updates.sizes[other]) for other in others):
        raise UnfixedError("its indices and updates differ in size")
    for other in others:
        extent = min(places.buffer[other], updates.buffer[other])
        if not is_vector and other != axis:
            extent = min(extent, value.buffer[other])
        places = buffers.fitted(writer, places, other, extent)
        updates = buffers.fitted(writer, updates, other, extent)
    if is_vector:
        for other in range(given.rank - 1, updates.rank):
            extent = value.buffer[other - given.rank + 1 + len(sizes)]
            updates = buffers.fitted(writer, updates, other, extent)
    made = step.again(value, places, updates)[0]
    made = replace(made, shape=value.buffer, buffer=value.buffer)
    made = buffers.fitted(writer, made, axis, room)
    return replace(made, shape=shape, zeros=frozenset())


def _reverse(step: Step) -> Value:
    value, writer = step.value(), step.writer
    lengths = buffers.masked(writer, step.value(1), [0], 1)
    batch = int(step.get("batch_axis", 1))
    if not same(value.sizes[batch], lengths.sizes[0]):
        raise UnfixedError("its lengths are not as many as its sequences")
    room = min(value.buffer[batch], lengths.buffer[0])
    value = buffers.fitted(writer, value, batch, room)
    lengths = buffers.fitted(writer, lengths, 0, room)
    return step.shaped(step.again(value, lengths)[0], value.sizes)


SLICING: Rules = {
    "Concat": _concat,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "ReverseSequence": _reverse,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": _split,
}
