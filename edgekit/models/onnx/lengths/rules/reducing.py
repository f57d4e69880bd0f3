"""Operators that combine the elements along dimensions: what lies beyond the end must not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, product
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import Value
from edgekit.models.onnx.lengths.writer import Writer


def zero(element: int) -> float:
    return 0


NEUTRAL: Mapping[str, Callable[[int], float]] = {
    "ReduceL1": zero,
    "ReduceL2": zero,
    "ReduceLogSum": zero,
    "ReduceLogSumExp": buffers.lowest,
    "ReduceMax": buffers.lowest,
    "ReduceMean": zero,
    "ReduceMin": buffers.highest,
    "ReduceProd": lambda element: 1,
    "ReduceSum": zero,
    "ReduceSumSquare": zero,
}
"""The number that changes no result, by the type of the elements."""
_SUMS = frozenset({"ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"})


def shape_after(shape: Sequence[Size], axes: Sequence[int], keepdims: bool) -> tuple[Size, ...]:
    """Return a shape after a reduction."""
    sizes: list[Size | None] = [1 if keepdims else None] * len(shape)
    return tuple(
        size
        for size in (sizes[i] if i in axes else size for i, size in enumerate(shape))
        if size is not None
    )


def zeros_after(zeros: frozenset[int], axes: Sequence[int], keepdims: bool) -> frozenset[int]:
    """Return the dimensions filled with zeros after a reduction."""
    left = zeros - set(axes)
    return left if keepdims else frozenset(z - sum(axis < z for axis in axes) for z in left)


def mean(writer: Writer, value: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
    """Average over dimensions, by their true sizes."""
    filled = buffers.masked(writer, value, axes)
    total = writer.emit("ReduceSum", filled, writer.constant(list(axes)), keepdims=int(keepdims))
    count = writer.length(product(value.sizes[axis] for axis in axes))
    made = writer.emit("Div", total, writer.emit("Cast", count, to=value.element))
    shape = shape_after(value.sizes, axes, keepdims)
    room = tuple(int(str(x)) for x in shape_after(value.buffer, axes, keepdims))
    return replace(made, shape=shape, buffer=room, zeros=zeros_after(filled.zeros, axes, keepdims))


def _reduce(step: Step) -> Value:
    value, operator = step.value(), step.node.op_type
    axes = step.axes(1, value.rank)
    keepdims = bool(step.get("keepdims", 1))
    if not axes:
        if step.get("noop_with_empty_axes", 0):
            return step.shaped(step.again(*step.inputs)[0], value.sizes)
        axes = list(range(value.rank))
    if operator == "ReduceMean" and set(axes) & set(value.padded):
        return mean(step.writer, value, axes, keepdims)
    filled = step.masked(0, axes, NEUTRAL[operator](value.element))
    made = step.again(filled, *step.inputs[1:])[0]
    zeros = zeros_after(filled.zeros, axes, keepdims) if operator in _SUMS else frozenset[int]()
    return step.shaped(made, shape_after(value.sizes, axes, keepdims), zeros)


def _softmax(step: Step) -> Value:
    value = step.value()
    axis = step.axis(-1, value.rank)
    filled = step.masked(0, [axis], buffers.lowest(value.element))
    zeros = frozenset({axis} & set(value.padded))
    if step.node.op_type == "LogSoftmax":
        zeros = frozenset()
    return step.shaped(step.again(filled)[0], value.sizes, zeros)


def _place_of_best(step: Step) -> Value:
    value, writer = step.value(), step.writer
    axis = step.axis(0, value.rank)
    worst = buffers.lowest if step.node.op_type == "ArgMax" else buffers.highest
    made = step.again(step.masked(0, [axis], worst(value.element)))[0]
    if step.get("select_last_index", 0) and axis in value.padded:
        last = writer.length(value.sizes[axis] - 1)
        made = writer.emit("Min", made, last)
    return step.shaped(made, shape_after(value.sizes, [axis], bool(step.get("keepdims", 1))))


def _top(step: Step) -> list[Value]:
    value, writer = step.value(), step.writer
    axis = step.axis(-1, value.rank)
    (count,) = step.content(1)
    room = min(buffers.room_of(count), value.buffer[axis])
    worst = buffers.lowest if step.get("largest", 1) else buffers.highest
    filled = step.masked(0, [axis], worst(value.element))
    made = step.again(filled, writer.constant([room]), sorted=1)
    shape = (*value.sizes[:axis], count, *value.sizes[axis + 1 :])
    return [step.shaped(one, shape) if one.name else one for one in made]


def _running(step: Step) -> Value:
    value = step.value()
    (axis,) = step.integers(1)
    fill = 1 if step.node.op_type == "CumProd" else 0
    given = step.masked(0, [axis % value.rank], fill) if step.get("reverse", 0) else value
    return step.shaped(step.again(given, step.value(1))[0], value.sizes)


def _unit(step: Step) -> Value:
    value = step.value()
    axis = step.axis(-1, value.rank)
    filled = step.masked(0, [axis])
    return step.shaped(step.again(filled)[0], value.sizes, filled.zeros & {axis})


def _normalized(step: Step) -> list[Value] | None:
    """Normalise over the last dimensions; None if one of them varies."""
    value = step.value()
    axis = step.axis(-1, value.rank)
    behind = range(axis, value.rank)
    if set(behind) & set(value.padded):
        return None
    made = step.again(*step.inputs)
    shapes = [value.sizes, *[shape_after(value.sizes, behind, True)] * 2]
    return [
        step.shaped(one, shape) if one.name else one
        for one, shape in zip(made, shapes, strict=False)
    ]


def _each_channel(step: Step) -> Value:
    """Normalise each channel over its places."""
    value, writer = step.value(), step.writer
    step.fixed_at(0, [1], "and each of its places has a scale of its own")
    axes = list(range(2, value.rank))
    if not set(axes) & set(value.padded):
        return step.shaped(step.again(*step.inputs)[0], value.sizes)
    centred = writer.emit("Sub", value, mean(writer, value, axes))
    centred = replace(centred, shape=value.sizes, buffer=value.buffer)
    filled = buffers.masked(writer, centred, axes)
    squares = writer.emit("Mul", filled, filled)
    squares = replace(squares, shape=value.sizes, buffer=value.buffer, zeros=filled.zeros)
    epsilon = buffers.scalar(writer, step.get("epsilon", 1e-5), value)
    spread = writer.emit("Add", mean(writer, squares, axes), epsilon)
    shape = writer.constant([value.buffer[1]] + [1] * len(axes))
    scale, shift = (writer.emit("Reshape", step.value(i), shape) for i in (1, 2))
    factor = writer.emit("Div", scale, writer.emit("Sqrt", spread))
    return step.shaped(writer.emit("Add", writer.emit("Mul", filled, factor), shift), value.sizes)


def _between_channels(step: Step) -> Value:
    step.fixed_at(0, [1], "and its neighbours count")
    return step.shaped(step.again(step.value())[0], step.value().sizes)


REDUCING: Rules = {
    **dict.fromkeys(NEUTRAL, _reduce),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("ArgMax", "ArgMin"), _place_of_best),
    **dict.fromkeys(("CumProd", "CumSum"), _running),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalized),
    "InstanceNormalization": _each_channel,
    "LRN": _between_channels,
    "LpNormalization": _unit,
    "TopK": _top,
}
