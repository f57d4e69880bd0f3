"""Operators that give a tensor another shape."""

from __future__ import annotations

from dataclasses import replace

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, decided, divided, product, same
from edgekit.models.onnx.lengths.regroup import regrouped
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value, rooms


def _reshape(step: Step) -> Value:
    value, wanted = step.value(), step.content(1)
    if not step.get("allowzero", 0):
        wanted = [
            value.sizes[i] if size == 0 and isinstance(size, int) else size
            for i, size in enumerate(wanted)
        ]
    if -1 in wanted:
        rest = product(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = divided(product(value.sizes), rest)
    return regrouped(step.writer, value, wanted)


def _flatten(step: Step) -> Value:
    value = step.value()
    axis = step.get("axis", 1)
    axis = axis + value.rank if axis < 0 else axis
    return regrouped(step.writer, value, (product(value.sizes[:axis]), product(value.sizes[axis:])))


def _transpose(step: Step) -> Value:
    value = step.value()
    order = list(step.get("perm") or reversed(range(value.rank)))
    zeros = frozenset(order.index(axis) for axis in value.zeros)
    return step.shaped(step.again(value)[0], [value.sizes[axis] for axis in order], zeros)


def _squeeze(step: Step) -> Value:
    value = step.value()
    axes = step.axes(1, value.rank)
    if axes is None:
        if any(decided("==", size, 1) is None for size in value.sizes):
            raise UnfixedError("it removes dimensions of size 1, and a dimension may have size 1")
        axes = [axis for axis, size in enumerate(value.sizes) if size == 1]
    left = [axis for axis in range(value.rank) if axis not in axes]
    if not all(same(value.sizes[axis], 1) for axis in axes):
        raise UnfixedError("it removes a dimension that varies")
    made = step.writer.emit(
        "Reshape", value, step.writer.constant([value.buffer[axis] for axis in left])
    )
    return step.shaped(
        made,
        [value.sizes[axis] for axis in left],
        frozenset(left.index(axis) for axis in value.zeros),
    )


def _unsqueeze(step: Step) -> Value:
    value = step.value()
    given = step.get("axes") or step.integers(1)
    rank = value.rank + len(given)
    axes = {axis % rank for axis in given}
    kept = [axis for axis in range(rank) if axis not in axes]
    shape: list[Size] = [1] * rank
    for axis, size in zip(kept, value.sizes, strict=True):
        shape[axis] = size
    zeros = frozenset(kept[axis] for axis in value.zeros)
    return step.shaped(step.again(*step.inputs)[0], shape, zeros)


def _expand(step: Step) -> Value:
    value, writer = step.value(), step.writer
    wanted = step.content(1)
    rank = max(value.rank, len(wanted))
    sizes: list[Size] = [*[1] * (rank - value.rank), *value.sizes]
    asked: list[Size] = [*[1] * (rank - len(wanted)), *wanted]
    shape = []
    for own, other in zip(sizes, asked, strict=True):
        if own != 1 and other != 1 and not same(own, other):
            raise UnfixedError(f"it expands a dimension of {own} to {other}")
        shape.append(other if own == 1 else own)
    room = list(rooms(tuple(shape)))
    for axis in range(value.rank):
        extent = value.buffer[axis]
        if value.sizes[axis] != 1 and extent != room[rank - value.rank + axis]:
            value = buffers.fitted(writer, value, axis, room[rank - value.rank + axis])
    made = step.again(value, writer.constant(room))[0]
    offset = rank - value.rank
    return step.shaped(made, shape, frozenset(axis + offset for axis in value.zeros))


def _tile(step: Step) -> Value:
    value, writer = step.value(), step.writer
    for axis, times in enumerate(step.content(1)):
        size = value.sizes[axis] * times
        if times == 1:
            continue
        places = buffers.counted(writer, buffers.room_of(size))
        if value.buffer[axis] != 1 and buffers.room_of(size):
            places = writer.emit("Mod", places, writer.length(value.sizes[axis]))
        else:
            places = writer.constant([0] * buffers.room_of(size))
        places = buffers.clamped(writer, places, value.buffer[axis])
        value = buffers.gathered(writer, value, axis, places, size)
    return value


def _to_space(step: Step) -> Value:
    value, block = step.value(), int(step.get("blocksize"))
    step.fixed_at(0, [1], "and holds the channels")
    batch, channels, height, width = value.sizes
    shape = (batch, divided(channels, block * block), height * block, width * block)
    return step.shaped(step.again(value)[0], shape)


def _to_depth(step: Step) -> Value:
    value, block = step.value(), int(step.get("blocksize"))
    step.fixed_at(0, [1], "and holds the channels")
    for axis in (2, 3):
        room = value.buffer[axis]
        value = buffers.fitted(step.writer, value, axis, -(-room // block) * block)
    batch, channels, height, width = value.sizes
    shape = (batch, channels * (block * block), divided(height, block), divided(width, block))
    return step.shaped(step.again(value)[0], shape)


def _filled(step: Step) -> Value:
    """Write a tensor of equal numbers at its largest size."""
    shape = tuple(step.content(0))
    made = step.again(step.writer.constant(list(rooms(shape))))[0]
    return step.shaped(made, shape, buffer=rooms(shape))


def _range(step: Step) -> Value:
    writer = step.writer
    (start,), (limit,), (stride,) = (step.content(i) for i in range(3))
    if not isinstance(stride, int) or not stride:
        raise UnfixedError("its step varies")
    reach = limit - start if stride > 0 else start - limit
    count = divided(reach + abs(stride) - 1, abs(stride))
    if decided("<", count, 0) is not False:
        raise UnfixedError(f"it may count from {start} to {limit}, which is less")
    kind = buffers.numpy_type(step.value().element)
    room = buffers.room_of(count)
    if isinstance(start, int):
        numbers = [start + i * stride for i in range(room)]
        made = writer.constant(numbers, kind)
    else:
        numbers = [i * stride for i in range(room)]
        made = writer.emit("Add", writer.constant(numbers, kind), step.value())
    return replace(made, name=writer.named(made), shape=(count,), buffer=(room,), content=None)


def _same_shape(step: Step) -> Value:
    """Pass a tensor through whose elements depend on their place alone."""
    return step.shaped(step.again(*step.inputs)[0], step.value().sizes)


def _one_hot(step: Step) -> Value:
    value = step.value()
    (depth,) = step.integers(1)
    axis = step.get("axis", -1)
    axis = axis + value.rank + 1 if axis < 0 else axis
    shape = (*value.sizes[:axis], depth, *value.sizes[axis:])
    return step.shaped(step.again(*step.inputs)[0], shape)


SHAPING: Rules = {
    "ConstantOfShape": _filled,
    "DepthToSpace": _to_space,
    "Expand": _expand,
    "EyeLike": _same_shape,
    "Flatten": _flatten,
    "OneHot": _one_hot,
    "Range": _range,
    "Reshape": _reshape,
    "SpaceToDepth": _to_depth,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _same_shape,
    "Unsqueeze": _unsqueeze,
}
