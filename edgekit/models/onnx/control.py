"""If, Loop, Scan and SequenceMap: decided, unrolled, or computed both ways.

The device runs straight-line code. A branch with a known condition is decided at import; otherwise
both branches are computed and one result is selected. Loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
from tvm import relax

from edgekit.base.options import option
from edgekit.models.control import (
    BOTH_BRANCHES,
    KNOWN_BRANCH,
    UNROLLED,
    check_length,
    known_scalar,
    selected,
)
from edgekit.models.onnx.node import RefusedError
from edgekit.models.onnx.operators.common import take_at
from edgekit.models.onnx.values import Value, as_expr, is_known, shape_of

Scope = Mapping[str, Value]
Opsets = Mapping[str, int]


class Walker(Protocol):
    """The interface of an import that control flow uses."""

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

    def attribute(self, name: str, default: Any) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return default

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
    taken = node.run(node.graph("then_branch"))
    other = node.run(node.graph("else_branch"))
    node.importer.repaired(BOTH_BRANCHES)
    return selected(condition, taken, other, node.importer.settle)


def _loop(node: ControlNode) -> list[Value]:
    body = node.body()
    bind = f"if a model input decides it, bind that one with {option('constant', 'NAME=VALUE')}"
    limit = known_scalar(node.inputs[0], "trip count", bind) if node.inputs[0] is not None else None
    running = True
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        running = bool(known_scalar(node.inputs[1], "condition", bind))
    carried = list(node.inputs[2:])
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    iteration = 0
    while running and (limit is None or iteration < limit):
        arguments = [np.array(iteration, np.int64), np.array(True), *carried]
        results = node.run_again(iteration, body, arguments)
        running = bool(known_scalar(results[0], "condition", bind))
        carried = results[1 : 1 + len(carried)]
        for values, result in zip(collected, results[1 + len(carried) :], strict=True):
            values.append(result)
        iteration += 1
    return [*carried, *(node.importer.settle(_stack(values, 0)) for values in collected)]


def _scan(node: ControlNode) -> list[Value]:
    if node.opsets[""] < 9:
        raise RefusedError("Scan before opset 9 has a batch axis that is not supported")
    body = node.body()
    scanned = int(node.attribute("num_scan_inputs", 0))
    states = list(node.inputs[: len(node.inputs) - scanned])
    sequences = node.inputs[len(node.inputs) - scanned :]
    outputs = len(body.output) - len(states)
    in_axes = node.attribute("scan_input_axes", [0] * scanned)
    in_reversed = node.attribute("scan_input_directions", [0] * scanned)
    out_axes = node.attribute("scan_output_axes", [0] * outputs)
    out_reversed = node.attribute("scan_output_directions", [0] * outputs)
    length = shape_of(sequences[0])[in_axes[0]]
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
