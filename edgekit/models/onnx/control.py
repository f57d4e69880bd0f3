"""If, Loop, Scan and SequenceMap: decided, unrolled, or computed both ways.

The device runs straight-line code. A branch with a known condition is decided at import; otherwise
both branches are computed and one result is selected. Loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from tvm import relax

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


ControlConverter = Callable[[Walker, onnx.NodeProto, Sequence[Value], Scope, Opsets], list[Value]]


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    for attribute in node.attribute:
        if attribute.name == name:
            return attribute.g
    raise RefusedError(f"its {name} is missing")


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def _if(
    importer: Walker,
    node: onnx.NodeProto,
    inputs: Sequence[Value],
    scope: Scope,
    opsets: Opsets,
) -> list[Value]:
    condition = inputs[0]
    if is_known(condition):
        branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        importer.repaired("branches whose condition is known were taken when importing")
        return importer.run_graph(_graph(node, branch), (), scope, opsets)
    taken = importer.run_graph(_graph(node, "then_branch"), (), scope, opsets)
    other = importer.run_graph(_graph(node, "else_branch"), (), scope, opsets)
    importer.repaired("branches decided on the device are both computed, and one is selected")
    flag = importer.settle(relax.op.reshape(as_expr(condition), ()))
    return [importer.settle(_select(flag, a, b)) for a, b in zip(taken, other, strict=True)]


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


def _loop(
    importer: Walker,
    node: onnx.NodeProto,
    inputs: Sequence[Value],
    scope: Scope,
    opsets: Opsets,
) -> list[Value]:
    body = _graph(node, "body")
    limit = _known_scalar(inputs[0], "trip count") if inputs[0] is not None else None
    running = True
    if len(inputs) > 1 and inputs[1] is not None:
        running = bool(_known_scalar(inputs[1], "condition"))
    carried = list(inputs[2:])
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    iteration = 0
    while running and (limit is None or iteration < limit):
        _check_length(iteration, body)
        arguments = [np.array(iteration, np.int64), np.array(True), *carried]
        results = importer.run_graph(body, arguments, scope, opsets)
        running = bool(_known_scalar(results[0], "condition"))
        carried = results[1 : 1 + len(carried)]
        for values, result in zip(collected, results[1 + len(carried) :], strict=True):
            values.append(result)
        iteration += 1
    importer.repaired("loops were written out, iteration by iteration")
    return [*carried, *(importer.settle(_stack(values, 0)) for values in collected)]


def _scan(
    importer: Walker,
    node: onnx.NodeProto,
    inputs: Sequence[Value],
    scope: Scope,
    opsets: Opsets,
) -> list[Value]:
    if opsets[""] < 9:
        raise RefusedError("Scan before opset 9 has a batch axis that is not supported")
    body = _graph(node, "body")
    scanned = int(_attribute(node, "num_scan_inputs", 0))
    states = list(inputs[: len(inputs) - scanned])
    sequences = inputs[len(inputs) - scanned :]
    outputs = len(body.output) - len(states)
    in_axes = _attribute(node, "scan_input_axes", [0] * scanned)
    in_reversed = _attribute(node, "scan_input_directions", [0] * scanned)
    out_axes = _attribute(node, "scan_output_axes", [0] * outputs)
    out_reversed = _attribute(node, "scan_output_directions", [0] * outputs)
    length = shape_of(sequences[0])[in_axes[0]]
    collected: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(length):
        _check_length(step, body)
        slices = [
            importer.settle(_take(value, length - 1 - step if backwards else step, axis))
            for value, axis, backwards in zip(sequences, in_axes, in_reversed, strict=True)
        ]
        results = importer.run_graph(body, [*states, *slices], scope, opsets)
        states = results[: len(states)]
        for values, result, backwards in zip(
            collected, results[len(states) :], out_reversed, strict=True
        ):
            values.insert(0 if backwards else len(values), result)
    importer.repaired("loops were written out, iteration by iteration")
    stacked = [_stack(values, axis) for values, axis in zip(collected, out_axes, strict=True)]
    return [*states, *(importer.settle(value) for value in stacked)]


def _sequence_map(
    importer: Walker,
    node: onnx.NodeProto,
    inputs: Sequence[Value],
    scope: Scope,
    opsets: Opsets,
) -> list[Value]:
    """Import the body once for each item. ONNX's own definition of this operator hides the outer
    graph's values from the body."""
    body = _graph(node, "body")
    items = inputs[0]
    if not isinstance(items, tuple):
        raise RefusedError("its input is not a sequence")
    mapped: list[list[Value]] = [[] for _ in body.output]
    for index, item in enumerate(items):
        _check_length(index, body)
        others = [
            value[index] if isinstance(value, tuple) and index < len(value) else value
            for value in inputs[1:]
        ]
        if any(isinstance(value, tuple) for value in others):
            raise RefusedError("its sequences have different lengths")
        results = importer.run_graph(body, [item, *others], scope, opsets)
        for values, result in zip(mapped, results, strict=True):
            values.append(result)
    importer.repaired("loops were written out, iteration by iteration")
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
            "if a model input decides it, bind that one with --constant NAME=VALUE",
        )
    return int(value.reshape(-1)[0])


def _check_length(iteration: int, body: onnx.GraphProto) -> None:
    if iteration * max(1, len(body.node)) > LONGEST_LOOP:
        raise RefusedError(f"written out, it is longer than {LONGEST_LOOP} nodes")


CONTROL: Mapping[str, ControlConverter] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
