"""Operators that keep state in variable tensors: SVDF, RNN and LSTM, written out step by step.

With int8 weights and a float input LiteRT rounds input and state in each step, as
`dynamic_range.rounded` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import tflite
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.wording import counted
from edgekit.models.onnx.values import Value, as_expr
from edgekit.models.tflite import recurrent_integers
from edgekit.models.tflite.conversion import Conversion
from edgekit.models.tflite.dynamic_range import nearest, rounded, weights_as_floats
from edgekit.models.tflite.file import (
    TfliteGraph,
    TfliteOperator,
    TfliteTensor,
    VariableKey,
    tensor_key,
)

op = relax.op
LONGEST_SEQUENCE = 2_000
"""The most steps to write out; more would take minutes to compile."""
_NORMAL = 1e-8
"""What LiteRT adds to the variance in the normalisation of a gate."""


class Stateful(Conversion, Protocol):
    graph: TfliteGraph
    variables: dict[VariableKey, Value]


@dataclass(frozen=True)
class _Layer:
    """An operator with its options."""

    converter: Stateful
    operator: TfliteOperator
    options: Any
    intermediates: tuple[int, ...] = ()
    """The tensors whose scales values between the operator's steps have."""

    def has(self, place: int) -> bool:
        return place < len(self.operator.inputs) and self.operator.inputs[place] >= 0

    def given(self, place: int) -> Any:
        return self.converter.get_expr(self.operator.inputs[place])

    def tensor(self, place: int) -> TfliteTensor:
        return self.converter.graph.tensors[self.operator.inputs[place]]

    def intermediate(self, place: int) -> TfliteTensor:
        tensors = self.converter.graph.tensors
        if not (place < len(self.intermediates) and 0 <= self.intermediates[place] < len(tensors)):
            raise ValueError("the scales between its steps are not in the file")
        return tensors[self.intermediates[place]]

    def raw(self, place: int) -> Array:
        """Return a constant's stored numbers."""
        (wrapper,) = self.converter.get_tensors([self.operator.inputs[place]])
        return self.converter.get_tensor_value(wrapper)

    def floats(self, place: int) -> Any:
        """Return an operand as floats; quantised weights are widened on import."""
        index = self.operator.inputs[place]
        (wrapper,) = self.converter.get_tensors([index])
        stored = self.converter.graph.tensors[index].quantization
        if stored is None:
            return self.converter.get_tensor_expr(wrapper)
        value = self.converter.get_tensor_value(wrapper)
        return relax.const(weights_as_floats(value, stored), "float32")

    def emit(self, value: Any) -> Any:
        return self.converter.bb.emit(self.converter.bb.normalize(value))

    def product(self, value: Any, place: int) -> Any:
        """Multiply rows by the weights."""
        tensor = self.converter.graph.tensors[self.operator.inputs[place]]
        if tensor.quantization is not None:
            symmetric = not self.options.AsymmetricQuantizeInputs()
            value = rounded(self.converter.bb, value, [len(value.ty.shape) - 1], symmetric)
        return self.emit(op.matmul(value, self.emit(op.permute_dims(self.floats(place), [1, 0]))))

    def activated(self, value: Any) -> Any:
        kind = self.options.FusedActivationFunction()
        return self.emit(self.converter.convert_fused_activation_function(self.emit(value), kind))

    def state(self, place: int) -> Any:
        return as_expr(self.converter.variables[self._key(place)])

    def keep(self, place: int, value: Any) -> None:
        self.converter.variables[self._key(place)] = value

    def _key(self, place: int) -> VariableKey:
        key = tensor_key(self.operator.inputs[place])
        if key not in self.converter.variables:
            raise ValueError("its state is not a variable tensor of the main graph")
        return key


def _float_svdf(layer: _Layer) -> Any:
    """Append the features of the input to the memory of each filter, and weigh the memory."""
    filters, memory = _extents(layer.floats(2))
    after = _remembered(layer, layer.product(layer.given(0), 1), filters, memory)
    weighed = layer.emit(op.sum(op.multiply(after, layer.floats(2)), [2]))
    rank = layer.options.Rank()
    total = layer.emit(op.sum(op.reshape(weighed, (-1, filters // rank, rank)), [2]))
    return layer.activated(op.add(total, layer.floats(3)) if layer.has(3) else total)


def _integer_svdf(layer: _Layer) -> Any:
    """Do the same with int8 features and int16 memory, scaled as LiteRT scales them: it applies no
    activation."""
    converter = layer.converter
    tensors = [converter.graph.tensors[index] for index in layer.operator.inputs]
    (result,) = (converter.graph.tensors[index] for index in layer.operator.outputs)
    scales = [0.0 if one.quantization is None else one.quantization.scales[0] for one in tensors]
    assert tensors[0].quantization is not None and result.quantization is not None
    zero = tensors[0].quantization.zero_points[0]
    filters, memory = tensors[2].shape
    raw = [None if place == 4 else _whole(layer, place) for place in range(len(tensors))]
    shifted = op.subtract(raw[0], relax.const(zero, "int32"))
    sums = op.matmul(shifted, op.permute_dims(raw[1], [1, 0]), out_dtype="int32")
    features = _scaled(layer, sums, scales[0] * scales[1] / scales[4], 0, "int16")
    after = _remembered(layer, features, filters, memory)
    weighed = layer.emit(op.sum(op.multiply(op.astype(after, "int32"), raw[2]), [2]))
    rank = layer.options.Rank()
    total = op.sum(op.reshape(weighed, (-1, filters // rank, rank)), [2])
    if layer.has(3):
        total = op.add(total, raw[3])
    made = result.quantization
    return _scaled(
        layer, total, scales[4] * scales[2] / made.scales[0], made.zero_points[0], result.dtype
    )


def _remembered(layer: _Layer, features: Any, filters: int, memory: int) -> Any:
    """Return the memory of the filters with new features in the place of the oldest."""
    state = layer.state(4)
    before = layer.emit(op.reshape(state, (-1, filters, memory)))
    kept = layer.emit(op.strided_slice(before, axes=[2], begin=[1], end=[memory]))
    latest = layer.emit(op.reshape(features, (-1, filters, 1)))
    after = layer.emit(op.concat([kept, latest], axis=2))
    layer.keep(4, layer.emit(op.reshape(after, state.ty.shape)))
    return after


def _whole(layer: _Layer, place: int) -> Any:
    if not layer.has(place):
        return None
    (wrapper,) = layer.converter.get_tensors([layer.operator.inputs[place]])
    return layer.emit(op.astype(layer.converter.get_tensor_expr(wrapper), "int32"))


def _scaled(layer: _Layer, sums: Any, scale: float, zero: int, dtype: str) -> Any:
    """Return whole sums in other steps, clipped to the type."""
    builder, limits = layer.converter.bb, np.iinfo(dtype)
    real = builder.emit(op.multiply(op.astype(sums, "float32"), relax.const(scale, "float32")))
    steps = op.add(nearest(builder, real), relax.const(float(zero), "float32"))
    return layer.emit(op.astype(op.clip(steps, float(limits.min), float(limits.max)), dtype))


def _extents(value: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in value.ty.shape)


def _svdf(layer: _Layer) -> Any:
    is_float = layer.converter.graph.tensors[layer.operator.inputs[0]].dtype == "float32"
    return _float_svdf(layer) if is_float else _integer_svdf(layer)


Step = Callable[[Any, Sequence[Any], dict[int, Any]], Any]
"""A function of the input's part of each gate and of the states by their places."""


def _rnn_step(layer: _Layer, parts: Sequence[Any], states: dict[int, Any]) -> Any:
    recurred = op.add(parts[0], layer.product(states[4], 2))
    states[4] = layer.activated(layer.emit(op.add(recurred, layer.floats(3))))
    return states[4]


def _lstm_step(layer: _Layer, parts: Sequence[Any], states: dict[int, Any]) -> Any:
    """Compute a step with the gates in TFLite's order: input, forget, cell, output."""
    hidden, cell = states[18], states[19]

    def gate(number: int, peeped: Any) -> Any:
        total = op.add(parts[number], layer.product(hidden, 5 + number))
        peephole = (9, 10, -1, 11)[number]
        if peephole > 0 and layer.has(peephole):
            total = op.add(total, op.multiply(peeped, layer.floats(peephole)))
        total = layer.emit(total)
        if layer.has(20 + number):
            mean = layer.emit(op.mean(total, [1], keepdims=True))
            apart = layer.emit(op.subtract(total, mean))
            spread = op.mean(op.multiply(apart, apart), [1], keepdims=True)
            root = layer.emit(op.sqrt(op.add(spread, relax.const(_NORMAL, "float32"))))
            total = op.multiply(op.divide(apart, root), layer.floats(20 + number))
        total = layer.emit(op.add(total, layer.floats(12 + number)))
        return layer.activated(total) if number == 2 else layer.emit(op.sigmoid(total))

    forget = gate(1, cell)
    admit = gate(0, cell) if layer.has(1) else op.subtract(relax.const(1.0, "float32"), forget)
    cell = layer.emit(op.add(op.multiply(forget, cell), op.multiply(admit, gate(2, cell))))
    cell = _clipped(layer, cell, layer.options.CellClip())
    hidden = layer.emit(op.multiply(gate(3, cell), layer.activated(cell)))
    if layer.has(16):
        hidden = layer.product(hidden, 16)
        if layer.has(17):
            hidden = layer.emit(op.add(hidden, layer.floats(17)))
        hidden = _clipped(layer, hidden, layer.options.ProjClip())
    states[18], states[19] = hidden, cell
    return hidden


def _clipped(layer: _Layer, value: Any, limit: float) -> Any:
    return layer.emit(op.clip(value, -limit, limit)) if limit > 0 else value


@dataclass(frozen=True)
class _Recurrent:
    """An operator that repeats a step."""

    step: Step
    weights: tuple[int, ...]
    """The places of the input's weights; the first may be left out."""
    states: tuple[int, ...]
    options: Any
    is_sequence: bool
    backwards: bool = False
    """Whether the last step comes first."""
    product: Callable[[Any, Any, int], Any] = _Layer.product
    """The product of values with weights, before what the steps add to it."""


@dataclass(frozen=True)
class _Both:
    """An operator that goes forwards and backwards over a sequence."""

    step: _Recurrent
    forwards: tuple[int, ...]
    """The places of a direction's operands, in the order of the operator with one direction."""
    backwards: tuple[int, ...]
    other_input: int
    """The place of the input of the backward direction, where it is another one."""
    other_weights: tuple[int, ...]
    """The places of the weights of that input, where both directions take it."""


_RNN = (_rnn_step, (1,), (4,))
_LSTM = (_lstm_step, (1, 2, 3, 4), (18, 19))
_RECURRENT: Mapping[str, _Recurrent] = {
    "RNN": _Recurrent(*_RNN, tflite.RNNOptions, False),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _Recurrent(*_RNN, tflite.SequenceRNNOptions, True),
    "LSTM": _Recurrent(*_LSTM, tflite.LSTMOptions, False),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _Recurrent(
        *_LSTM, tflite.UnidirectionalSequenceLSTMOptions, True
    ),
}
_BOTH: Mapping[str, _Both] = {
    "BIDIRECTIONAL_SEQUENCE_RNN": _Both(
        _Recurrent(*_RNN, tflite.BidirectionalSequenceRNNOptions, True),
        *(tuple(range(5)), (0, *range(5, 9)), 9, (10, 11)),
    ),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _Both(
        _Recurrent(*_LSTM, tflite.BidirectionalSequenceLSTMOptions, True),
        *((*range(18), 35, 36), (0, *range(18, 35), 37, 38), 39, tuple(range(40, 48))),
    ),
}


def _both(layer: _Layer, kind: _Both) -> Any:
    if any(layer.has(place) for place in kind.other_weights):
        raise ValueError("both directions take an auxiliary input with weights of its own")
    batch = _extents(layer.given(0))[0]
    if kind.step.step is _lstm_step and not layer.options.TimeMajor() and batch > 1:
        raise ValueError("LiteRT gives no defined result for a batch whose second axis is time")
    given = layer.operator.inputs
    made = []
    for places, backwards in ((kind.forwards, False), (kind.backwards, True)):
        own = [given[place] for place in places]
        if backwards and layer.has(kind.other_input):
            own[0] = given[kind.other_input]
        one = replace(layer, operator=replace(layer.operator, inputs=tuple(own)))
        made.append(_recurrent(one, replace(kind.step, backwards=backwards)))
    if not layer.options.MergeOutputs():
        return relax.Tuple(made)
    return layer.emit(op.concat(made, axis=2))


def _recurrent(layer: _Layer, kind: _Recurrent) -> Any:
    value, time = layer.given(0), 0
    if kind.is_sequence:
        time = 0 if layer.options.TimeMajor() else 1
    length = _extents(value)[time] if kind.is_sequence else 1
    if length > LONGEST_SEQUENCE:
        raise ValueError(f"it runs over {counted(length, 'step')}, more than {LONGEST_SEQUENCE}")
    layer.converter.repaired(f"{layer.operator.name} was written out step by step")
    parts = [
        kind.product(layer, value, place) if layer.has(place) else None for place in kind.weights
    ]
    states = {place: layer.state(place) for place in kind.states}
    results: list[Any] = []
    for number in reversed(range(length)) if kind.backwards else range(length):
        own = [_at(layer, part, number, time) if kind.is_sequence else part for part in parts]
        results.insert(0 if kind.backwards else len(results), kind.step(layer, own, states))
    for place, state in states.items():
        layer.keep(place, state)
    return layer.emit(op.stack(results, time)) if kind.is_sequence else results[0]


def _at(layer: _Layer, part: Any, number: int, axis: int) -> Any:
    if part is None:
        return None
    taken = op.strided_slice(part, axes=[axis], begin=[number], end=[number + 1])
    return layer.emit(op.squeeze(taken, [axis]))


def convert(converter: Stateful, operator: TfliteOperator, flat: tflite.Operator) -> Any:
    """Convert an operator with state; the state goes into the converter's variables."""
    kind, both = _RECURRENT.get(operator.name), _BOTH.get(operator.name)
    described = kind if both is None else both.step
    options = (tflite.SVDFOptions if described is None else described.options)()
    table = flat.BuiltinOptions()
    if table is not None:
        options.Init(table.Bytes, table.Pos)
    between = () if flat.IntermediatesIsNone() else flat.IntermediatesAsNumpy().tolist()
    layer = _Layer(converter, operator, options, tuple(between))
    if operator.name == "LSTM" and options.KernelType() != tflite.LSTMKernelType.FULL:
        raise ValueError("it is the basic kernel, which no exporter of today writes")
    if both is not None:
        return _both(layer, both)
    if kind is None:
        return _svdf(layer)
    if layer.tensor(0).dtype == "int8":
        integers = recurrent_integers
        kind = replace(kind, step=integers.step, product=integers.product)
    return _recurrent(layer, kind)
