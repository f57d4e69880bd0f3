"""Recurrent layers: the last state is that of the last true step."""

from __future__ import annotations

from onnx import TensorProto

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, same
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value


def _recurrent(step: Step) -> list[Value]:
    value, writer = step.value(), step.writer
    sequence, batch = (1, 0) if step.get("layout", 0) else (0, 1)
    step.fixed_at(0, [2], "and holds the features")
    weights, states = step.value(1), step.value(2)
    for place, axis in ((4, 0), (5, batch), (6, batch)):
        if step.has(place) and not same(step.value(place).sizes[axis], value.sizes[batch]):
            raise UnfixedError("its states are not as many as its sequences")
    counts: Value | None = None
    backwards = step.get("direction", "forward") != "forward"
    if step.has(4):
        counts = buffers.masked(writer, step.value(4), [0], 1)
    elif sequence in value.padded and (backwards or step.wants(1) or step.wants(2)):
        count = writer.emit("Cast", writer.length(value.sizes[sequence]), to=TensorProto.INT32)
        counts = writer.emit("Expand", count, writer.constant([value.buffer[batch]]))
    given = [*step.inputs, *[None] * (5 - len(step.inputs))]
    given[4] = counts
    made = step.again(*given)
    directions, hidden = weights.buffer[0], states.buffer[-1]
    layers: tuple[Size, ...] = (directions, hidden)
    if sequence:
        whole = (value.sizes[0], value.sizes[1], *layers)
        last = (value.sizes[0], *layers)
    else:
        whole = (value.sizes[0], directions, value.sizes[1], hidden)
        last = (directions, value.sizes[1], hidden)
    return [
        step.shaped(one, whole if i == 0 else last) if one.name else one
        for i, one in enumerate(made)
    ]


RECURRENT: Rules = dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent)
