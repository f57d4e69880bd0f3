"""Operators that compute each element from those at the same place."""

from __future__ import annotations

import numpy as np

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, same
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value
from edgekit.models.onnx.lengths.writer import Writer

KEEP_ZERO = frozenset(
    (
        *("Abs", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "Cast", "Ceil", "Celu", "Dropout"),
        *("Elu", "Erf", "Floor", "Gelu", "HardSwish", "Identity", "LeakyRelu", "Mish", "Neg"),
        *("Relu", "Round", "Selu", "Shrink", "Sign", "Sin", "Sinh", "Softsign", "Sqrt", "Swish"),
        *("Tan", "Tanh", "ThresholdedRelu"),
    )
)
"""Functions of one number that make zero of zero."""

_OTHERS = (
    *("Acos", "Acosh", "Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    *("CastLike", "Clip", "Cos", "Cosh", "Div", "Equal", "Exp", "Greater", "GreaterOrEqual"),
    *("HardSigmoid", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod"),
    *("Mul", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Sigmoid", "Softplus", "Sub", "Sum"),
    *("Where", "Xor"),
)


def broadcast(
    writer: Writer, values: list[Value], behind: int = 0
) -> tuple[list[Value], tuple[Size, ...]]:
    """Give values buffers that broadcast as the tensors do, and return the common shape.

    The last `behind` dimensions are left as they are.
    """
    rank = max(value.rank for value in values)
    values = list(values)
    shape: list[Size] = []
    for place in range(rank, behind, -1):
        size: Size = 1
        at = [(i, value.rank - place) for i, value in enumerate(values) if value.rank >= place]
        wide = [(i, axis) for i, axis in at if values[i].sizes[axis] != 1]
        for i, axis in wide:
            if size == 1:
                size = values[i].sizes[axis]
            elif not same(size, values[i].sizes[axis]):
                raise UnfixedError(
                    f"it joins a dimension of {size} with one of {values[i].sizes[axis]}"
                )
        room = min((values[i].buffer[axis] for i, axis in wide), default=1)
        for i, axis in wide:
            values[i] = buffers.fitted(writer, values[i], axis, room)
        shape.append(size)
    return values, tuple(shape)


def _elementwise(step: Step) -> Value:
    given = [value for value in step.inputs if value is not None]
    values, shape = broadcast(step.writer, given)
    left = iter(values)
    made = step.again(*(None if value is None else next(left) for value in step.inputs))[0]
    return step.shaped(made, shape, _zeros(step, values, shape), rooms_of(values, len(shape)))


def rooms_of(values: list[Value], rank: int) -> tuple[int, ...]:
    """Return the shape of the buffer that values broadcast to."""
    rooms = [1] * rank
    for value in values:
        for axis, room in enumerate(value.buffer, rank - value.rank):
            rooms[axis] = room if room != 1 else rooms[axis]
    return tuple(rooms)


def _zeros(step: Step, values: list[Value], shape: tuple[Size, ...]) -> frozenset[int]:
    operator = step.node.op_type
    if operator in KEEP_ZERO:
        return values[0].zeros if values[0].rank == len(shape) else frozenset()
    if operator in ("Mul", "Div") and len(values) == 2 and values[0].rank == len(shape):
        factor = values[1].content
        if factor is not None and buffers.is_finite(factor):
            return values[0].zeros if operator == "Mul" or np.all(factor) else frozenset()
    if operator in ("Add", "Sub", "Mul") and all(value.rank == len(shape) for value in values):
        return values[0].zeros & values[1].zeros
    return frozenset()


def _per_channel(step: Step) -> list[Value]:
    """Pass the first input through, whose channels the other inputs belong to."""
    value = step.value()
    if any(other is not None and other.padded for other in step.inputs[1:]):
        raise UnfixedError("its scale varies in size")
    axis = 1 if step.node.op_type == "BatchNormalization" else step.axis(1, value.rank)
    second = step.inputs[1] if step.has(1) else None
    if second is not None and second.rank and value.rank:
        step.fixed_at(0, [axis], "and each of its places has a scale of its own")
    if step.get("training_mode", 0):
        step.fixed_at(0, range(value.rank), "and the mean is taken along it")
    made = step.again(*step.inputs)
    return [step.shaped(made[0], value.sizes, buffer=value.buffer), *made[1:]]


def _dropout(step: Step) -> list[Value]:
    made = step.again(*step.inputs)
    value = step.value()
    return [step.shaped(one, value.sizes, value.zeros) for one in made[:1]] + [
        step.shaped(one, value.sizes) for one in made[1:] if one.name
    ]


ELEMENTWISE: Rules = {
    **dict.fromkeys((*KEEP_ZERO, *_OTHERS), _elementwise),
    **dict.fromkeys(("BatchNormalization", "DequantizeLinear", "QuantizeLinear"), _per_channel),
    "Dropout": _dropout,
}
