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
from edgekit.models.onnx.node import RefusedError
from edgekit.models.onnx.operators.common import take_at
from edgekit.models.onnx.values import Value, as_expr, dtype_of, is_known, shape_of

LONGEST_LOOP = 20_000
"""The most nodes, over all iterations, that an unrolled loop may have."""

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
        self.importer.repaired("loops were written out, iteration by iteration")
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
        if iteration * max(1, len(body.node)) > LONGEST_LOOP:
            raise RefusedError(f"written out, it is longer than {LONGEST_LOOP} nodes")
        return self.run(body, arguments)


def _if(node: ControlNode) -> list[Value]:
    condition = node.inputs[0]
    if is_known(condition):
        branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        node.importer.repaired("branches whose condition is known were taken when importing")
        return node.run(node.graph(branch))
    taken = node.run(node.graph("then_branch"))
    other = node.run(node.graph("else_branch"))
    node.importer.repaired("branches decided on the device are both computed, and one is selected")
    flag = node.importer.settle(relax.op.reshape(as_expr(condition), ()))
    return [node.importer.settle(_select(flag, a, b)) for a, b in zip(taken, other, strict=True)]


def _select(flag: Value, taken: Value, other: Value) -> Value:
    for value in (taken, other):
        if value is None or isinstance(value, tuple):
            raise RefusedError("its branches, decided on the device, yield sequences or optionals")
    if shape_of(taken) != shape_of(other) or dtype_of(taken) != dtype_of(other):
        raise RefusedError(
            "its branches are decided on the device and yield different shapes: "
            f"{list(shape_of(taken))} and {list(shape_of(other))}"
        )
    return relax.op.where(flag, as_expr(taken), as_expr(other))


def _loop(node: ControlNode) -> list[Value]:
    body = node.body()
    limit = _known_scalar(node.inputs[0], "trip count") if node.inputs[0] is not None else None
    running = True
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        running = bool(_known_scalar(node.inputs[1], "condition"))
    carried = list(node.inputs[2:])
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    iteration = 0
    while running and (limit is None or iteration < limit):
        arguments = [np.array(iteration, np.int64), np.array(True), *carried]
        results = node.run_again(iteration, body, arguments)
        running = bool(_known_scalar(results[0], "condition"))
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


def _known_scalar(value: Value, what: str) -> int:
    if not is_known(value):
        raise RefusedError(
            f"its {what} is computed on the device",
            f"if a model input decides it, bind that one with {option('constant', 'NAME=VALUE')}",
        )
    return int(value.reshape(-1)[0])


CONTROL: Mapping[str, Callable[[ControlNode], list[Value]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
