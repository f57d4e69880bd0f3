"""Convolutions and poolings: a window must see beyond the end what it sees as padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, bounds, divided, larger, smaller
from edgekit.models.onnx.lengths.rules.reducing import mean
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value


@dataclass(frozen=True)
class _Windows:
    """The windows of an operator over the dimensions behind the channels."""

    step: Step
    value: Value
    kernel: Sequence[int]

    def numbers(self, attribute: str, default: int, times: int = 1) -> list[int]:
        return list(self.step.get(attribute) or [default] * len(self.kernel) * times)

    @property
    def strides(self) -> list[int]:
        return self.numbers("strides", 1)

    @property
    def widths(self) -> list[int]:
        dilations = self.numbers("dilations", 1)
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, dilations, strict=True)]

    @property
    def axes(self) -> list[int]:
        return list(range(2, 2 + len(self.kernel)))

    @property
    def hit(self) -> list[int]:
        return [axis for axis in self.axes if axis in self.value.padded]

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.value.sizes[2:]

    def pads(self) -> list[Size]:
        """Return what is added before and behind each dimension."""
        mode = self.step.get("auto_pad", "NOTSET")
        if mode == "NOTSET":
            return list(self.numbers("pads", 0, times=2))
        if mode == "VALID":
            return [0] * (2 * len(self.kernel))
        before: list[Size] = []
        behind: list[Size] = []
        for size, stride, width in zip(self.sizes, self.strides, self.widths, strict=True):
            count = divided(size + stride - 1, stride)
            total = larger((count - 1) * stride + width - size, 0)
            half = divided(total, 2)
            first, last = (half, total - half) if mode == "SAME_UPPER" else (total - half, half)
            before.append(first)
            behind.append(last)
        return before + behind

    def counts(self, pads: Sequence[Size]) -> list[Size]:
        """Return how many windows there are along each dimension."""
        found = []
        rank = len(self.kernel)
        for i, (size, stride, width) in enumerate(
            zip(self.sizes, self.strides, self.widths, strict=True)
        ):
            rest = size + pads[i] + pads[rank + i] - width
            if self.step.get("ceil_mode", 0):
                # A window that begins in the padding behind is none.
                last = divided(size + pads[i] - 1, stride)
                found.append(smaller(divided(rest + stride - 1, stride), last) + 1)
            else:
                found.append(divided(rest, stride) + 1)
        return found

    def filled(self, fill: float | Value, pads: Sequence[Size]) -> tuple[Value, list[int]]:
        """Return the input with its padding, and what the operator still has to add."""
        writer, value = self.step.writer, self.value
        rank, left = len(self.kernel), list(pads)
        for i, axis in enumerate(self.axes):
            ends = (left[i], left[rank + i])
            if all(isinstance(end, int) or bounds(end)[0] == bounds(end)[1] for end in ends):
                left[i], left[rank + i] = (bounds(end)[0] for end in ends)
                value = buffers.masked(writer, value, [axis], fill)
            else:
                value = buffers.framed(writer, value, axis, *ends, fill)
                left[i] = left[rank + i] = 0
        return value, [int(str(pad)) for pad in left]


def _convolution(step: Step, weight: int, zero: int | None) -> Value:
    value, kernel = step.value(), step.value(weight)
    if kernel.padded:
        raise UnfixedError("the size of its weights varies")
    step.fixed_at(0, [1], "and holds the channels")
    windows = _Windows(step, value, kernel.buffer[2:])
    pads = windows.pads()
    fill: Value | int = 0
    if zero is not None and step.has(zero):
        fill = step.writer.emit("Reshape", step.value(zero), step.writer.constant([], "int64"))
    filled, left = windows.filled(fill, pads)
    given = [filled, *step.inputs[1:]]
    made = step.again(*given, auto_pad=None, pads=left)[0]
    return step.shaped(made, (value.sizes[0], kernel.buffer[0], *windows.counts(pads)))


def _conv(step: Step) -> Value:
    return _convolution(step, 1, None)


def _conv_integer(step: Step) -> Value:
    return _convolution(step, 1, 2)


def _quantised_conv(step: Step) -> Value:
    return _convolution(step, 3, 2)


def _transposed(step: Step) -> Value:
    value, kernel = step.value(), step.value(1)
    if kernel.padded:
        raise UnfixedError("the size of its weights varies")
    step.fixed_at(0, [1], "and holds the channels")
    windows = _Windows(step, value, kernel.buffer[2:])
    if windows.hit and step.get("output_shape") is not None:
        raise UnfixedError("its attribute output_shape is fixed, and its input varies")
    extra, rank = windows.numbers("output_padding", 0), len(windows.kernel)
    pads = windows.numbers("pads", 0, times=2)
    shape: list[Size] = [value.sizes[0], kernel.buffer[1] * int(step.get("group", 1))]
    for i, (size, stride, width) in enumerate(
        zip(windows.sizes, windows.strides, windows.widths, strict=True)
    ):
        if step.get("auto_pad", "NOTSET").startswith("SAME"):
            shape.append(size * stride)
        else:
            shape.append((size - 1) * stride + extra[i] + width - pads[i] - pads[rank + i])
    filled = step.masked(0, windows.hit)
    return step.shaped(step.again(filled, *step.inputs[1:])[0], shape)


def _pool(step: Step) -> Value:
    value, writer, operator = step.value(), step.writer, step.node.op_type
    step.fixed_at(0, [1], "and holds the channels")
    windows = _Windows(step, value, step.get("kernel_shape"))
    pads = windows.pads()
    shape = (*value.sizes[:2], *windows.counts(pads))
    if step.wants(1) and windows.hit:
        raise UnfixedError("the places of the largest numbers depend on the size of its input")
    fill = buffers.lowest(value.element) if operator == "MaxPool" else 0
    filled, left = windows.filled(fill, pads)
    if operator != "AveragePool" or not windows.hit:
        made = step.again(filled, auto_pad=None, pads=left)
        return step.shaped(made[0], shape)
    if step.get("count_include_pad", 0):
        if step.get("ceil_mode", 0):
            raise UnfixedError("it averages over windows that are cut off at the end")
        return step.shaped(step.again(filled, auto_pad=None, pads=left)[0], shape)
    # The padding counts in neither average, so that their quotient is that of the true elements.
    ones = writer.emit(
        "Expand", buffers.scalar(writer, 1, value), writer.constant([1, 1, *value.buffer[2:]])
    )
    ones = replace(ones, shape=(1, 1, *value.sizes[2:]), buffer=(1, 1, *value.buffer[2:]))
    there, _ = _Windows(step, ones, windows.kernel).filled(0, pads)
    common = {"auto_pad": None, "pads": left, "count_include_pad": 1}
    total = step.again(filled, **common)[0]
    given = {key: item for key, item in step.attributes.items() if key not in common}
    share = writer.emit("AveragePool", there, **given, pads=left, count_include_pad=1)
    return step.shaped(writer.emit("Div", total, share), shape, buffer=total.buffer)


def _whole(step: Step) -> Value:
    value, operator = step.value(), step.node.op_type
    step.fixed_at(0, [1], "and holds the channels")
    axes = list(range(2, value.rank))
    shape = (*value.sizes[:2], *[1] * len(axes))
    if operator == "GlobalAveragePool" and set(axes) & set(value.padded):
        return mean(step.writer, value, axes)
    fill = buffers.lowest(value.element) if operator == "GlobalMaxPool" else 0
    return step.shaped(step.again(step.masked(0, axes, fill))[0], shape)


def _roi_align(step: Step) -> Value:
    """Read a region of zeros in the first picture where there is none."""
    regions, pictures = step.masked(1, [0]), step.masked(2, [0])
    room = min(regions.buffer[0], pictures.buffer[0])
    regions = buffers.fitted(step.writer, regions, 0, room)
    pictures = buffers.fitted(step.writer, pictures, 0, room)
    cells = (step.get("output_height", 1), step.get("output_width", 1))
    made = step.again(step.value(), regions, pictures)[0]
    return step.shaped(made, (regions.sizes[0], step.value().sizes[1], *cells))


WINDOWS: Rules = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _whole),
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _transposed,
    "QLinearConv": _quantised_conv,
    "RoiAlign": _roi_align,
}
