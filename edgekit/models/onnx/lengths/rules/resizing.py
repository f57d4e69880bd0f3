"""Resizing along a dimension that varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from onnx import TensorProto

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, divided, same
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value
from edgekit.models.onnx.lengths.writer import Writer

_FLOAT = int(TensorProto.FLOAT)
_LOCAL = frozenset({"asymmetric", "half_pixel", "tf_half_pixel_for_nn"})
"""How places are computed, where the size does not count beside the scale."""
_MOST_PARTS = 64


def _resize(step: Step) -> Value:
    value = step.value()
    rank = value.rank
    axes = [axis % rank for axis in step.get("axes") or range(rank)]
    mode = step.get("coordinate_transformation_mode", "half_pixel")
    if step.get("keep_aspect_ratio_policy", "stretch") != "stretch" or mode == "tf_crop_and_resize":
        raise UnfixedError("it keeps the proportions, or cuts a part out, of a size that varies")
    shape = list(value.sizes)
    scales: list[Fraction | None] = [Fraction(1)] * rank
    if step.has(3):
        for axis, size in zip(axes, step.content(3), strict=True):
            shape[axis], scales[axis] = size, _ratio(size, value.sizes[axis])
    else:
        numbers = step.value(2).content
        if numbers is None or numbers.dtype == object:
            raise UnfixedError("its scales are computed from data")
        for axis, scale in zip(axes, numbers.reshape(-1).tolist(), strict=True):
            exact = Fraction(scale)
            scales[axis] = exact
            if axis in value.padded:
                if exact.denominator > _MOST_PARTS:
                    raise UnfixedError(f"its scale {scale} makes no whole number of a size")
                shape[axis] = divided(value.sizes[axis] * exact.numerator, exact.denominator)
            else:
                shape[axis] = floor(value.buffer[axis] * exact)
    changed = [axis for axis in range(rank) if not same(shape[axis], value.sizes[axis])]
    if not changed:
        return value
    kind = step.get("mode", "nearest")
    if mode in _LOCAL and all(scales) and not step.get("antialias", 0):
        return _with_scales(step, shape, [scale or Fraction(1) for scale in scales])
    if kind not in ("nearest", "linear") or step.get("antialias", 0):
        raise UnfixedError(f"it resizes to a size that is no multiple of its input's, by {kind}")
    for axis in changed:
        value = _along(step, value, axis, shape[axis], kind)
    return value


def _ratio(size: Size, of: Size) -> Fraction | None:
    """Return the factor between two sizes; None if it depends on the lengths."""
    if isinstance(size, int) and isinstance(of, int):
        return Fraction(size, of)
    for below in (1, 2, 3, 4):
        for above in range(1, 33):
            if same(size * below, of * above):
                return Fraction(above, below)
    return None


def _with_scales(step: Step, shape: Sequence[Size], scales: Sequence[Fraction]) -> Value:
    """Resize the buffer, whose last true element is repeated beyond the end."""
    value, writer = step.value(), step.writer
    for axis in value.padded:
        if scales[axis] != 1:
            last = writer.length(value.sizes[axis] - 1)
            places = buffers.counted(writer, value.buffer[axis])
            places = buffers.clamped(writer, writer.emit("Min", places, last), value.buffer[axis])
            value = buffers.gathered(writer, value, axis, places, value.sizes[axis])
    factors = writer.constant([float(scale) for scale in scales], np.float32)
    made = step.again(value, None, factors, axes=None)[0]
    return step.shaped(made, shape)


@dataclass(frozen=True)
class _Places:
    """Computes numbers of places, float32 as other runtimes do."""

    writer: Writer

    def number(self, size: Size) -> Value:
        return self.writer.emit("Cast", self.writer.length(size), to=_FLOAT)

    def constant(self, number: float) -> Value:
        return self.writer.constant(number, np.float32)

    def of(self, mode: str, old: Size, new: Size) -> Value:
        """Return the place in the old dimension of each element of the new one."""
        emit, half = self.writer.emit, self.constant(0.5)
        room = buffers.room_of(new)
        counted = self.writer.constant(np.arange(room), np.float32)
        before, after = self.number(old), self.number(new)
        scale = emit("Div", after, before)
        if mode == "align_corners":
            one = self.constant(1)
            span = emit("Max", emit("Sub", after, one), one)
            return emit("Div", emit("Mul", counted, emit("Sub", before, one)), span)
        if mode == "asymmetric":
            return emit("Div", counted, scale)
        centre = emit("Div", emit("Add", counted, half), scale)
        if mode == "tf_half_pixel_for_nn":
            return centre
        place = emit("Sub", centre, half)
        if mode == "half_pixel":
            return place
        if mode == "pytorch_half_pixel":
            alone = emit("LessOrEqual", after, self.constant(1))
            return emit("Where", alone, self.constant(0), place)
        raise UnfixedError(f"it computes places as {mode}")


def _along(step: Step, value: Value, axis: int, size: Size, kind: str) -> Value:
    """Resize one dimension with computed places."""
    writer, old = step.writer, value.sizes[axis]
    emit = writer.emit
    mode = step.get("coordinate_transformation_mode", "half_pixel")
    place = _Places(writer).of(mode, old, size)
    zero, last = writer.constant(0), writer.length(old - 1)

    def whole(number: Value) -> Value:
        index = emit("Cast", number, to=writer.constant(0).element)
        return emit("Max", emit("Min", index, last), zero)

    if kind == "nearest":
        rounding = step.get("nearest_mode", "round_prefer_floor")
        half = writer.constant(0.5, np.float32)
        rounded = {
            "floor": lambda: emit("Floor", place),
            "ceil": lambda: emit("Ceil", place),
            "round_prefer_floor": lambda: emit("Ceil", emit("Sub", place, half)),
            "round_prefer_ceil": lambda: emit("Floor", emit("Add", place, half)),
        }[rounding]()
        return buffers.gathered(writer, value, axis, whole(rounded), size)
    end = emit("Cast", last, to=_FLOAT)
    inside = emit("Max", emit("Min", place, end), writer.constant(0, np.float32))
    low = emit("Floor", inside)
    part = emit("Sub", inside, low)
    if value.element != _FLOAT:
        part = emit("Cast", part, to=value.element)
    share = emit("Reshape", part, writer.constant([-1] + [1] * (value.rank - 1 - axis)))
    first = buffers.gathered(writer, value, axis, whole(low), size)
    up = emit("Add", low, writer.constant(1, np.float32))
    second = buffers.gathered(writer, value, axis, whole(up), size)
    made = emit("Add", first, emit("Mul", emit("Sub", second, first), share))
    return step.shaped(made, first.sizes, first.zeros, buffer=first.buffer)


RESIZING: Rules = {"Resize": _resize}
