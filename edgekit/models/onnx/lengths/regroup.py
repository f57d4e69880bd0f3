"""Give a tensor another shape: dimensions are merged and divided.

The dimensions before and after are matched in groups of as many elements. Where only the first of
a group varies, its elements stand together at the start of the buffer, and stay where they are;
else they are moved by a computed index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, larger, product, same
from edgekit.models.onnx.lengths.values import UnfixedError, Value, rooms
from edgekit.models.onnx.lengths.writer import Writer


@dataclass(frozen=True)
class _Group:
    """Dimensions before and after that hold the same elements."""

    old: range
    new: range


def regrouped(writer: Writer, value: Value, shape: Sequence[Size]) -> Value:
    """Return the tensor in another shape of as many elements."""
    shape = tuple(shape)
    room = rooms(shape)
    groups = _groups(value.sizes, shape)
    flat = [math.prod(value.buffer[i] for i in group.old) for group in groups]
    wide = [math.prod(room[i] for i in group.new) for group in groups]
    in_place = [
        _leads(value.sizes, value.buffer, group.old) and _leads(shape, room, group.new)
        for group in groups
    ]
    zeros = frozenset(
        new
        for group, stays in zip(groups, in_place, strict=True)
        for old in value.zeros & set(group.old)
        for new in group.new
        if stays and shape[new] != room[new]
    )
    if not all(in_place) or flat != wide:
        sizes, old_room = value.sizes, value.buffer
        value = writer.emit("Reshape", value, writer.constant(flat))
        value = replace(value, shape=tuple(flat), buffer=tuple(flat))
        for axis, group in enumerate(groups):
            if in_place[axis]:
                value = buffers.fitted(writer, value, axis, wide[axis])
            else:
                old, new = _Part.of(sizes, old_room, group.old), _Part.of(shape, room, group.new)
                key = ("places", old, new)
                places = writer.once(key, lambda old=old, new=new: _places(writer, old, new))
                value = buffers.gathered(writer, value, axis, places, wide[axis])
    made = writer.emit("Reshape", value, writer.constant(list(room)))
    return replace(made, shape=shape, buffer=room, zeros=zeros)


def _groups(old: Sequence[Size], new: Sequence[Size]) -> list[_Group]:
    before = [product(old[:i]) for i in range(len(old) + 1)]
    after = [product(new[:i]) for i in range(len(new) + 1)]
    if not same(before[-1], after[-1]):
        raise UnfixedError(
            f"it makes a tensor of {after[-1]} elements of one that has {before[-1]}"
        )
    found = []
    first, second = 0, 0
    for i in range(1, len(old)):
        for j in range(second + 1, len(new)):
            if same(before[i], after[j]):
                found.append(_Group(range(first, i), range(second, j)))
                first, second = i, j
                break
    return [*found, _Group(range(first, len(old)), range(second, len(new)))]


def _leads(sizes: Sequence[Size], room: Sequence[int], axes: range) -> bool:
    """Tell whether a group's elements stand at the start of its part of the buffer."""
    wide = [axis for axis in axes if room[axis] != 1 or sizes[axis] != 1]
    return all(sizes[axis] == room[axis] for axis in wide[1:])


@dataclass(frozen=True)
class _Part:
    """The dimensions of a group."""

    sizes: tuple[Size, ...]
    room: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[Size], room: Sequence[int], axes: range) -> _Part:
        return cls(tuple(sizes[i] for i in axes), tuple(room[i] for i in axes))


def _places(writer: Writer, old: _Part, new: _Part) -> Value:
    """Return where in the old buffer each element of the new one stands."""
    constant = np.zeros(math.prod(new.room), np.int64)
    number: Value | None = None
    for axis, along in enumerate(np.indices(new.room)):
        step = product(new.sizes[axis + 1 :])
        if isinstance(step, int):
            constant = constant + along.reshape(-1) * step
        elif new.room[axis] > 1:
            part = writer.emit("Mul", writer.constant(along.reshape(-1)), writer.length(step))
            number = part if number is None else writer.emit("Add", number, part)
    if number is None:
        number = writer.constant(constant)
    elif constant.any():
        number = writer.emit("Add", number, writer.constant(constant))
    place: Value | None = None
    for axis in reversed(range(len(old.sizes))):
        if old.room[axis] == 1:
            continue
        size = writer.length(larger(old.sizes[axis], 1))
        first = not any(extent > 1 for extent in old.room[:axis])
        along = number if first else writer.emit("Mod", number, size)
        number = number if first else writer.emit("Div", number, size)
        stride = math.prod(old.room[axis + 1 :])
        if stride != 1:
            along = writer.emit("Mul", along, writer.constant(stride))
        place = along if place is None else writer.emit("Add", place, along)
    assert place is not None
    return buffers.clamped(writer, place, math.prod(old.room))
