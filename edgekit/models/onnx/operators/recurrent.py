"""RNN, GRU and LSTM as loops over their steps.

The input's part of every gate is one matrix product for all steps; each step computes the state's
part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from tvm import relax

from edgekit.compiler.loops import Sliced
from edgekit.models.control import repeated
from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, like, take_at
from edgekit.models.onnx.operators.integer import Weight, dynamic_product, weight_of
from edgekit.models.onnx.operators.layout import split
from edgekit.models.onnx.values import Expr, as_expr, constant, is_known, shape_of

op = relax.op
Function = Callable[[Expr], Expr]
Matrix: TypeAlias = Expr | Weight
"""A matrix of floats, or a quantised one, by which numbers are multiplied in integers."""


@dataclass(frozen=True)
class Direction:
    """The weights and functions of one direction of a layer."""

    node: Node
    weight: Matrix
    recurrence: Matrix
    input_bias: Expr | None
    state_bias: Expr | None
    peephole: Expr | None
    functions: tuple[Function, ...]
    hidden: int

    def clipped(self, value: Expr) -> Expr:
        clip = self.node.get("clip")
        return value if clip is None else op.clip(value, -clip, clip)

    def activate(self, number: int, value: Expr) -> Expr:
        return self.node.emit(self.functions[number](self.clipped(value)))

    def recur(self, state: Expr, weight: Matrix, bias: Expr | None) -> Expr:
        product = self.multiply(state, weight)
        return product if bias is None else self.node.emit(op.add(product, bias))

    def multiply(self, value: Expr, weight: Matrix) -> Expr:
        if isinstance(weight, Weight):
            return dynamic_product(self.node, value, weight)
        return self.node.emit(op.matmul(value, weight))


State = list[Expr]
Step = Callable[[Direction, Expr, State], State]


def _rnn_step(layer: Direction, given: Expr, state: State) -> State:
    recurred = layer.recur(state[0], layer.recurrence, layer.state_bias)
    return [layer.activate(0, op.add(given, recurred))]


def _gru_step(layer: Direction, given: Expr, state: State) -> State:
    node, hidden = layer.node, layer.hidden
    before = state[0]
    weights = split(node, layer.recurrence, 1, (2 * hidden, hidden))
    biases: Sequence[Expr | None] = (None, None)
    if layer.state_bias is not None:
        biases = split(node, layer.state_bias, 1, (2 * hidden, hidden))
    given_gates, given_new = split(node, given, 1, (2 * hidden, hidden))
    gates = op.add(given_gates, layer.recur(before, weights[0], biases[0]))
    update, reset = split(node, layer.activate(0, gates), 1, (hidden, hidden))
    if node.get("linear_before_reset", 0):
        recurred = op.multiply(reset, layer.recur(before, weights[1], biases[1]))
    else:
        recurred = layer.recur(node.emit(op.multiply(reset, before)), weights[1], biases[1])
    new = layer.activate(1, op.add(given_new, recurred))
    keep = op.subtract(like(1, update), update)
    return [node.emit(op.add(op.multiply(keep, new), op.multiply(update, before)))]


def _lstm_step(layer: Direction, given: Expr, state: State) -> State:
    """Compute one step, with gates in ONNX's order: input, output, forget, cell."""
    node, hidden = layer.node, layer.hidden
    before, cell = state
    recurred = layer.recur(before, layer.recurrence, layer.state_bias)
    gates = node.emit(op.add(given, recurred))
    into, out, forget, new = split(node, gates, 1, (hidden,) * 4)
    peeps: Sequence[Expr | None] = (None, None, None)
    if layer.peephole is not None:
        peeps = split(node, layer.peephole, 1, (hidden,) * 3)
    admitted = layer.activate(0, _peeped(into, peeps[0], cell))
    if node.get("input_forget", 0):
        kept = node.emit(op.subtract(like(1, admitted), admitted))
    else:
        kept = layer.activate(0, _peeped(forget, peeps[2], cell))
    candidate = layer.activate(1, new)
    after = node.emit(op.add(op.multiply(kept, cell), op.multiply(admitted, candidate)))
    shown = layer.activate(0, _peeped(out, peeps[1], after))
    return [node.emit(op.multiply(shown, layer.functions[2](after))), after]


def _peeped(gate: Expr, weight: Expr | None, cell: Expr) -> Expr:
    return gate if weight is None else op.add(gate, op.multiply(weight, cell))


@dataclass(frozen=True)
class Kind:
    """The characteristics of one recurrent operator."""

    gates: int
    states: int
    activations: tuple[str, ...]
    step: Step


KINDS: Mapping[str, Kind] = {
    "RNN": Kind(1, 1, ("Tanh",), _rnn_step),
    "GRU": Kind(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
    "DynamicQuantizeLSTM": Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
}
_WEIGHTS = {"DynamicQuantizeLSTM": ((8, 9), (10, 11))}
"""The inputs with the scales and zero points of quantised weights and recurrences."""


def _recurrent(node: Node) -> Outputs:
    kind, batch_first = KINDS[node.operator], bool(node.get("layout", 0))
    value = node.expr(0)
    if batch_first:
        value = node.emit(op.permute_dims(value, [1, 0, 2]))
    length, batch, _ = shape_of(value)
    hidden = node.shape(2)[1 if node.operator in _WEIGHTS else 2]
    directions = node.shape(1)[0]
    lengths = _lengths(node, length)
    histories, finals = [], []
    for number in range(directions):
        layer = _direction(node, kind, number, hidden)
        state = [
            _initial(node, 5 + i, number, (batch, hidden), batch_first) for i in range(kind.states)
        ]
        backwards = number == 1 or node.get("direction", "forward") == "reverse"
        history, final = _run(layer, kind, value, state, lengths, backwards)
        histories.append(history)
        finals.append(final)
    whole = op.concat([op.expand_dims(history, 1) for history in histories], axis=1)
    results = [node.emit(whole)]
    for i in range(kind.states):
        last = op.concat([op.expand_dims(final[i], 0) for final in finals], axis=0)
        results.append(node.emit(last))
    if batch_first:
        results[0] = node.emit(op.permute_dims(results[0], [2, 0, 1, 3]))
        results[1:] = [node.emit(op.permute_dims(state, [1, 0, 2])) for state in results[1:]]
    return list(results)


def _run(
    layer: Direction,
    kind: Kind,
    value: Expr,
    state: State,
    lengths: Expr | None,
    backwards: bool,
) -> tuple[Expr, State]:
    """Run one direction; return the state after each step, in input order, and the last state."""
    node = layer.node
    length, batch, size = shape_of(value)
    flat = node.emit(op.reshape(value, (length * batch, size)))
    given = layer.recur(flat, layer.weight, layer.input_bias)
    given = node.emit(op.reshape(given, (length, batch, kind.gates * layer.hidden)))
    sliced = [Sliced(given, backwards)]
    if lengths is not None:
        places = np.arange(length, dtype=np.int32)
        sliced.append(Sliced(as_expr(places), backwards))

    def step(slices: list[Expr], state: State) -> tuple[State, list[Expr]]:
        after = kind.step(layer, slices[0], state)
        if lengths is None:
            return after, after[:1]
        inside = node.emit(op.less(slices[1], lengths))
        shown = node.emit(op.where(inside, after[0], like(0, after[0])))
        kept = [
            node.emit(op.where(inside, new, old)) for new, old in zip(after, state, strict=True)
        ]
        return kept, [shown]

    *last, history = repeated(node.block, length, sliced, state, step, [backwards])
    return history, last


def _lengths(node: Node, length: int) -> Expr | None:
    """Return how many steps of each sequence count; None for all."""
    value = node.value(4)
    if value is None or (is_known(value) and bool((value == length).all())):
        return None
    return node.emit(op.reshape(cast(as_expr(value), "int32"), (-1, 1)))


def _direction(node: Node, kind: Kind, number: int, hidden: int) -> Direction:
    names = node.get("activations")
    count = len(kind.activations)
    own = kind.activations if names is None else names[number * count : (number + 1) * count]
    input_bias = state_bias = None
    if node.has(3):
        bias = _of_direction(node, 3, number, transpose=False)
        input_bias, state_bias = split(node, bias, 1, (kind.gates * hidden,) * 2)
    return Direction(
        node,
        _matrix(node, 1, number),
        _matrix(node, 2, number),
        input_bias,
        state_bias,
        _of_direction(node, 7, number, transpose=False) if node.has(7) else None,
        tuple(_function(node, name, number * count + i) for i, name in enumerate(own)),
        hidden,
    )


def _matrix(node: Node, position: int, number: int) -> Matrix:
    """Return one direction's weights, (inputs, gates)."""
    if node.operator not in _WEIGHTS:
        return _of_direction(node, position, number, transpose=True)
    scale, zero = (node.known(place)[number] for place in _WEIGHTS[node.operator][position - 1])
    return weight_of(node.known(position)[number], zero, scale)


def _of_direction(node: Node, position: int, number: int, *, transpose: bool) -> Expr:
    """Return one direction's part of a weight: a transposed matrix, or a row."""
    value = node.value(position)
    if is_known(value):
        share = value[number].T if transpose else value[number : number + 1]
        return as_expr(np.ascontiguousarray(share))
    share = take_at(value, constant(number, "int64"), axis=0)
    return node.emit(op.permute_dims(share, [1, 0]) if transpose else op.expand_dims(share, 0))


def _initial(
    node: Node, position: int, number: int, shape: tuple[int, int], batch_first: bool
) -> Expr:
    if not node.has(position):
        return as_expr(np.zeros(shape, node.dtype(0)))
    axis = 1 if batch_first else 0
    return node.emit(take_at(node.expr(position), constant(number, "int64"), axis=axis))


def _function(node: Node, name: str, place: int) -> Function:
    """Return an activation by name, with its parameters from the node's lists."""
    alphas, betas = node.get("activation_alpha", ()), node.get("activation_beta", ())
    alpha = alphas[place] if place < len(alphas) else _ALPHAS.get(name, 1.0)
    beta = betas[place] if place < len(betas) else 0.5
    functions: dict[str, Function] = {
        "Affine": lambda v: op.add(op.multiply(like(alpha, v), v), like(beta, v)),
        "Elu": lambda v: op.where(
            op.less(v, like(0, v)),
            op.multiply(like(alpha, v), op.subtract(op.exp(v), like(1, v))),
            v,
        ),
        "HardSigmoid": lambda v: op.clip(
            op.add(op.multiply(like(alpha, v), v), like(beta, v)), 0.0, 1.0
        ),
        "LeakyRelu": lambda v: op.nn.leakyrelu(v, alpha),
        "Relu": op.nn.relu,
        "ScaledTanh": lambda v: op.multiply(like(alpha, v), op.tanh(op.multiply(like(beta, v), v))),
        "Sigmoid": op.sigmoid,
        "Softplus": lambda v: op.log(op.add(op.exp(v), like(1, v))),
        "Softsign": lambda v: op.divide(v, op.add(like(1, v), op.abs(v))),
        "Tanh": op.tanh,
        "ThresholdedRelu": lambda v: op.where(op.greater(v, like(alpha, v)), v, like(0, v)),
    }
    if name not in functions:
        raise RefusedError(f"there is no activation function {name!r}")
    return functions[name]


_ALPHAS = {"HardSigmoid": 0.2, "LeakyRelu": 0.01}

RECURRENT: Converters = dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent)
MICROSOFT_RECURRENT: Converters = {"DynamicQuantizeLSTM": _recurrent}
