"""If, Loop, Scan and SequenceMap.

A branch with a known condition is decided at import, any other when the model runs. A loop whose
length is known is repeated or written out; one that data ends runs until it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnx
from tvm import relax

from edgekit.base.errors import EdgekitError
from edgekit.compiler.loops import Body, NoLoopError, Sliced, emit_loop
from edgekit.models.control import (
    DECIDED_BRANCH,
    DECIDED_LOOP,
    KNOWN_BRANCH,
    UNROLLED,
    check_length,
    decided_branch,
    decided_loop,
    flag_of,
    is_short,
    known_scalar,
)
from edgekit.models.onnx.node import NotKnownError, RefusedError
from edgekit.models.onnx.operators.common import take_at
from edgekit.models.onnx.values import Value, as_expr, is_known, shape_of

Scope = Mapping[str, Value]
Opsets = Mapping[str, int]


class Walker(Protocol):
    """The interface of an import that control flow uses."""

    block: Any
    """The builder that values are emitted to."""
    repairs: list[str]

    def repaired(self, sentence: str) -> None:
        """Tell the user of a repair, once."""
        ...

    def run_graph(
        self, graph: onnx.GraphProto, arguments: Sequence[Value], outer: Scope, opsets: Opsets
    ) -> list[Value]:
        """Import a graph's nodes and return the values of its outputs."""
        ...

    def settle(self, value: Value) -> Value:
        """Bind a value to a variable and check that its shape is known."""
        ...


@dataclass(frozen=True)
class ControlNode:
    """A node of control flow, and what surrounds it."""

    importer: Walker
    node: onnx.NodeProto
    inputs: Sequence[Value]
    scope: Scope
    opsets: Opsets

    def graph(self, name: str) -> onnx.GraphProto:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return attribute.g
        raise RefusedError(f"its {name} is missing")

    def body(self) -> onnx.GraphProto:
        """Return the graph of a loop, and tell that it is written out."""
        self.importer.repaired(UNROLLED)
        return self.graph("body")

    def repeated(
        self,
        count: int,
        sliced: Sequence[Sliced],
        states: Sequence[Value],
        body: Body,
        stacked: Sequence[bool],
    ) -> list[Value] | None:
        """Emit a loop; None if it is short, or if its body can't be repeated."""
        tensors = [*states, *(one.tensor for one in sliced)]
        if is_short(count) or any(v is None or isinstance(v, tuple) for v in tensors):
            return None
        given = [replace(one, tensor=as_expr(one.tensor)) for one in sliced]
        told = list(self.importer.repairs)
        try:
            return emit_loop(
                self.importer.block, count, given, list(map(as_expr, states)), body, stacked
            )
        except (NoLoopError, EdgekitError, RefusedError, NotKnownError):
            # Written out, the body may know more; if not, that says why.
            self.importer.repairs[:] = told
            return None

    def attribute(self, name: str, default: Any) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return default

    def tensors(self, values: Sequence[Value]) -> list[Any]:
        """Return the results of an iteration as expressions."""
        if any(value is None or isinstance(value, tuple) for value in values):
            raise NoLoopError("it yields sequences or optionals")
        return [self.importer.block.emit(as_expr(value)) for value in values]

    def run(self, graph: onnx.GraphProto, arguments: Sequence[Value] = ()) -> list[Value]:
        return self.importer.run_graph(graph, arguments, self.scope, self.opsets)

    def run_again(
        self, iteration: int, body: onnx.GraphProto, arguments: Sequence[Value]
    ) -> list[Value]:
        """Import the body of a loop once more."""
        check_length(iteration, len(body.node))
        return self.run(body, arguments)


def _if(node: ControlNode) -> list[Value]:
    condition = node.inputs[0]
    if is_known(condition):
        branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        node.importer.repaired(KNOWN_BRANCH)
        return node.run(node.graph(branch))
    node.importer.repaired(DECIDED_BRANCH)
    branches = [partial(node.run, node.graph(name)) for name in ("then_branch", "else_branch")]
    return decided_branch(node.importer.block, condition, branches)


def _loop(node: ControlNode) -> list[Value]:
    limit = _scalar(node.inputs[0])
    running = _scalar(node.inputs[1]) if len(node.inputs) > 1 else None
    running = np.array(True) if running is None else running
    carried = list(node.inputs[2:])
    if not (is_known(limit) or limit is None) or not is_known(running):
        return _decided(node, limit, running, carried)
    count = None if limit is None else int(limit)
    found = _counted(node, count, carried) if running and count is not None else None
    if found is not None:
        return found
    told = list(node.importer.repairs)
    try:
        return _written_out(node, count, bool(running), carried)
    except (RefusedError, EdgekitError) as refusal:
        node.importer.repairs[:] = told
        try:
            return _decided(node, limit, running, carried)
        except (RefusedError, EdgekitError, NotKnownError) as other:
            node.importer.repairs[:] = told
            raise refusal if is_known(running) and not running else other from refusal


def _scalar(value: Value) -> Value:
    """Return a known number as an array of no dimension, any other value as it is."""
    return value.reshape(-1)[:1].reshape(()) if is_known(value) else value


def _written_out(
    node: ControlNode, limit: int | None, running: bool, carried: list[Value]
) -> list[Value]:
    body = node.body()
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    iteration = 0
    while running and (limit is None or iteration < limit):
        arguments = [np.array(iteration, np.int64), np.array(True), *carried]
        results = node.run_again(iteration, body, arguments)
        running = bool(known_scalar(results[0], "condition", ""))
        carried = results[1 : 1 + len(carried)]
        for values, result in zip(collected, results[1 + len(carried) :], strict=True):
            values.append(result)
        iteration += 1
    return [*carried, *(node.importer.settle(_stack(values, 0)) for values in collected)]


def _decided(node: ControlNode, limit: Value, running: Value, carried: list[Value]) -> list[Value]:
    """Emit a Loop that data ends. Its states are whether another iteration runs, the number of
    iterations so far, and what the model carries."""
    builder, body = node.importer.block, node.graph("body")
    pieces = len(body.output) - 1 - len(carried)
    if any(value is None or isinstance(value, tuple) for value in carried):
        raise RefusedError("it carries sequences or optionals, and data ends it")
    last = None
    if limit is not None and not is_known(limit):
        last = builder.emit(relax.op.reshape(limit, ()))

    def goes_on(condition: Value, done: Value) -> Value:
        """Return whether another iteration runs after so many."""
        if last is None:
            return flag_of(builder, condition)
        is_left = builder.emit(relax.op.less(as_expr(done), last))
        if is_known(condition):
            return is_left if condition.all() else np.array(False)
        return builder.emit(relax.op.logical_and(flag_of(builder, condition), is_left))

    def iteration(given: list[Value]) -> tuple[list[Value], list[Value]]:
        done, states = given[1], given[2:]
        again, *results = node.run(body, [done, np.array(True), *states])
        after = builder.emit(relax.op.add(done, relax.const(1, "int64")))
        return [goes_on(again, after), after, *results[: len(states)]], results[len(states) :]

    node.importer.repaired(DECIDED_LOOP)
    zero = np.array(0, np.int64)
    bound = int(limit) if is_known(limit) else None
    if bound == 0:
        return _written_out(node, 0, False, carried)
    first = goes_on(running, zero)
    found = decided_loop(builder, bound, [first, zero, *carried], iteration, pieces)
    return found[2:]


def _counted(node: ControlNode, count: int, states: list[Value]) -> list[Value] | None:
    """Repeat the body of a Loop that nothing but its count ends; None if that can't be done."""
    body = node.graph("body")

    def iteration(slices: list[Any], given: list[Any]) -> tuple[list[Value], list[Value]]:
        goes_on, *results = node.run(body, [slices[0], np.array(True), *given])
        if not (is_known(goes_on) and goes_on.all()):
            raise NoLoopError("its condition may end it")
        return node.tensors(results[: len(states)]), node.tensors(results[len(states) :])

    numbers = [Sliced(np.arange(count, dtype=np.int64))]
    return node.repeated(
        count, numbers, states, iteration, [False] * (len(body.output) - 1 - len(states))
    )


def _scan(node: ControlNode) -> list[Value]:
    if node.opsets[""] < 9:
        raise RefusedError("Scan before opset 9 has a batch axis that is not supported")
    body = node.graph("body")
    scanned = int(node.attribute("num_scan_inputs", 0))
    states = list(node.inputs[: len(node.inputs) - scanned])
    sequences = node.inputs[len(node.inputs) - scanned :]
    outputs = len(body.output) - len(states)
    in_axes = node.attribute("scan_input_axes", [0] * scanned)
    in_reversed = node.attribute("scan_input_directions", [0] * scanned)
    out_axes = node.attribute("scan_output_axes", [0] * outputs)
    out_reversed = node.attribute("scan_output_directions", [0] * outputs)
    length = shape_of(sequences[0])[in_axes[0]]

    def iteration(slices: list[Any], given: list[Any]) -> tuple[list[Value], list[Value]]:
        results = node.run(body, [*given, *slices])
        return node.tensors(results[: len(states)]), node.tensors(results[len(states) :])

    if not is_short(length):
        settle = node.importer.settle
        sliced = [
            Sliced(settle(_first_axis(value, axis)), bool(backwards))
            for value, axis, backwards in zip(sequences, in_axes, in_reversed, strict=True)
        ]
        found = node.repeated(length, sliced, states, iteration, list(map(bool, out_reversed)))
        if found is not None:
            pieces = zip(found[len(states) :], out_axes, strict=True)
            return [
                *found[: len(states)],
                *(settle(_axis_of_first(value, axis)) for value, axis in pieces),
            ]
    body = node.body()
    collected: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(length):
        slices = [
            node.importer.settle(_take(value, length - 1 - step if backwards else step, axis))
            for value, axis, backwards in zip(sequences, in_axes, in_reversed, strict=True)
        ]
        results = node.run_again(step, body, [*states, *slices])
        states = results[: len(states)]
        for values, result, backwards in zip(
            collected, results[len(states) :], out_reversed, strict=True
        ):
            values.insert(0 if backwards else len(values), result)
    stacked = [_stack(values, axis) for values, axis in zip(collected, out_axes, strict=True)]
    return [*states, *(node.importer.settle(value) for value in stacked)]


def _sequence_map(node: ControlNode) -> list[Value]:
    """Import the body once for each item. ONNX's own definition of this operator hides the outer
    graph's values from the body."""
    body = node.body()
    items = node.inputs[0]
    if not isinstance(items, tuple):
        raise RefusedError("its input is not a sequence")
    mapped: list[list[Value]] = [[] for _ in body.output]
    for index, item in enumerate(items):
        others = [
            value[index] if isinstance(value, tuple) and index < len(value) else value
            for value in node.inputs[1:]
        ]
        if any(isinstance(value, tuple) for value in others):
            raise RefusedError("its sequences have different lengths")
        results = node.run_again(index, body, [item, *others])
        for values, result in zip(mapped, results, strict=True):
            values.append(result)
    return [tuple(values) for values in mapped]


def _first_axis(value: Value, axis: int) -> Value:
    """Return the tensor with this axis first."""
    if is_known(value):
        return np.moveaxis(value, axis, 0)
    rank = len(shape_of(value))
    rest = [place for place in range(rank) if place != axis % rank]
    return value if axis % rank == 0 else relax.op.permute_dims(value, [axis % rank, *rest])


def _axis_of_first(value: Value, axis: int) -> Value:
    """Return the tensor with its first axis at this place."""
    order = list(range(1, len(shape_of(value))))
    order.insert(axis % len(shape_of(value)), 0)
    return value if order[0] == 0 else relax.op.permute_dims(value, order)


def _take(value: Value, index: int, axis: int) -> Value:
    if is_known(value):
        return np.take(value, index, axis=axis)
    return take_at(value, relax.const(index, "int64"), axis=axis)


def _stack(values: Sequence[Value], axis: int) -> Value:
    if not values:
        raise RefusedError("it runs no iteration, so the shape of what it collects is unknown")
    if any(value is None or isinstance(value, tuple) for value in values):
        raise RefusedError("it collects sequences or optionals")
    if all(is_known(value) for value in values):
        return np.stack(values, axis=axis)
    if len({shape_of(value) for value in values}) != 1:
        raise RefusedError("what it collects changes shape from one iteration to the next")
    return relax.op.concat(
        [relax.op.expand_dims(as_expr(value), axis) for value in values], axis=axis
    )


CONTROL: Mapping[str, Callable[[ControlNode], list[Value]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
