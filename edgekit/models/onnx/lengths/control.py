"""Nodes with graphs of their own: If, Loop and Scan.

A branch that sizes decide is written in place of the node. Where a graph meets a dimension that
varies, it is written with fixed sizes too, and a loop over such a dimension runs for its largest
size, without a change of its states beyond the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import helper

from edgekit.models.onnx.graph import captured, subgraphs
from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import (
    Length,
    Size,
    bounds,
    largest,
    of_length,
    same,
)
from edgekit.models.onnx.lengths.step import Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value, rooms
from edgekit.models.onnx.lengths.writer import BOOL, Writer

Scope = Mapping[str, Value]
Run = Callable[[Writer, onnx.GraphProto, "dict[str, Value]"], "list[Value]"]
"""Writes a graph's nodes with a writer, and returns the values of its outputs."""


@dataclass(frozen=True)
class Nested:
    """A node with graphs, what surrounds it, and what writes a graph."""

    step: Step
    scope: Scope
    run: Run

    def graph(self, name: str) -> onnx.GraphProto:
        for attribute in self.step.node.attribute:
            if attribute.name == name:
                return attribute.g
        raise UnfixedError(f"its {name} is missing")

    @property
    def reads(self) -> set[str]:
        return {name for graph in subgraphs(self.step.node) for name in captured(graph)}

    @property
    def is_plain(self) -> bool:
        values = [self.scope[name] for name in self.reads if name in self.scope]
        return all(v is None or v.is_plain for v in (*values, *self.step.inputs))

    def written(
        self, graph: onnx.GraphProto, inputs: Mapping[str, Value]
    ) -> tuple[Writer, list[Value]]:
        """Write a graph apart from the nodes around it."""
        writer = self.step.writer.inside()
        writer.values.update({value.name: value for value in inputs.values()})
        return writer, self.run(writer, graph, {**self.scope, **inputs})


def written(nested: Nested) -> list[Value]:
    """Write a node with graphs."""
    step, operator = nested.step, nested.step.node.op_type
    if operator == "If":
        chosen = step.value(0).content
        if chosen is not None:
            graph = nested.graph("then_branch" if bool(chosen.reshape(-1)[0]) else "else_branch")
            return nested.run(step.writer, graph, dict(nested.scope))
    if nested.is_plain:
        return _unchanged(nested)
    rule = {"If": _if, "Loop": _loop, "Scan": _scan}.get(operator)
    if rule is None:
        raise UnfixedError("its graph meets a dimension that varies")
    return rule(nested)


def _unchanged(nested: Nested) -> list[Value]:
    """Write the node as it is, but for the names of what its graphs read."""
    step = nested.step
    names = {
        name: step.writer.named(nested.scope[name]) for name in nested.reads if name in nested.scope
    }
    made = step.again(*step.inputs)
    for graph in subgraphs(step.writer.nodes[-1]):
        _rename(graph, {old: new for old, new in names.items() if old != new})
    return made


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Give what a graph reads from around it other names."""
    own = {item.name for item in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    left = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = left.get(name, name)
        for inner in subgraphs(node):
            _rename(inner, left)
    for item in graph.output:
        if item.name in left:
            graph.node.append(helper.make_node("Identity", [left[item.name]], [item.name]))


def _graph(
    writer: Writer, name: str, inputs: Sequence[Value], outputs: Sequence[Value]
) -> onnx.GraphProto:
    """Return a graph of what was written."""
    results = []
    for value in outputs:
        copy = writer.emit("Identity", value)
        results.append(_declared(replace(copy, element=value.element, buffer=value.buffer)))
    return helper.make_graph(writer.nodes, name, [_declared(one) for one in inputs], results)


def _declared(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, value.element, value.buffer)


def _if(nested: Nested) -> list[Value]:
    """Write both branches. Where they make different sizes, each counts its own."""
    step = nested.step
    branches = [nested.written(nested.graph(f"{word}_branch"), {}) for word in ("then", "else")]
    (first, taken), (second, other) = branches
    outputs, shapes, lengths = len(taken), list[list[Size]](), list[Length]()
    for i, (one, two) in enumerate(zip(list(taken), list(other), strict=True)):
        if one.rank != two.rank:
            raise UnfixedError("its branches make tensors of different ranks")
        shape = list(one.sizes)
        for axis, (size, another) in enumerate(zip(one.sizes, two.sizes, strict=True)):
            room = min(one.buffer[axis], two.buffer[axis])
            if not same(size, another):
                room = max(largest(size), largest(another))
                least = min(bounds(size)[0], bounds(another)[0])
                lengths.append(Length(step.writer.fresh("count"), least, room))
                taken.append(first.length(size))
                other.append(second.length(another))
                shape[axis] = of_length(lengths[-1])
            taken[i] = buffers.fitted(first, taken[i], axis, room)
            other[i] = buffers.fitted(second, other[i], axis, room)
        shapes.append(shape)
    graphs = {
        "then_branch": _graph(first, "then_branch", [], taken),
        "else_branch": _graph(second, "else_branch", [], other),
    }
    counts = [step.writer.fresh(length.name) for length in lengths]
    made = replace(step, outputs=(*step.outputs, *counts)).again(step.value(0), **graphs)
    for length, one, value in zip(lengths, made[outputs:], taken[outputs:], strict=True):
        step.writer.place(length, _like(step.writer, one, value))
    results = [_like(step.writer, one, value) for one, value in zip(made, taken, strict=True)]
    return [
        replace(value, shape=tuple(shape))
        for value, shape in zip(results[:outputs], shapes, strict=True)
    ]


def _like(writer: Writer, made: Value, value: Value, shape: Sequence[Size] | None = None) -> Value:
    """Return what a node with graphs made, as a value in them."""
    sizes = value.sizes if shape is None else tuple(shape)
    room = value.buffer if shape is None else rooms(sizes[:1]) + value.buffer
    found = replace(made, element=value.element, shape=sizes, buffer=room)
    writer.values[made.name] = replace(found, shape=room)
    return found


def _argument(writer: Writer, name: str, value: Value) -> Value:
    """Return the input of a graph that takes values like this one."""
    return Value(writer.fresh(name), value.element, value.sizes, value.buffer)


def _kept(writer: Writer, inside: Value, old: Value, new: Value) -> Value:
    """Return a state after a step: as it was, beyond the last true step."""
    if not all(map(same, old.sizes, new.sizes)) or old.rank != new.rank:
        raise UnfixedError(f"its state of {list(old.buffer)} changes its size")
    for axis, extent in enumerate(old.buffer):
        new = buffers.fitted(writer, new, axis, extent)
    made = writer.emit("Where", inside, new, old)
    return replace(made, shape=old.sizes, buffer=old.buffer)


def _loop(nested: Nested) -> list[Value]:
    step, writer, body = nested.step, nested.step.writer, nested.graph("body")
    count = step.content(0)[0] if step.has(0) else None
    if count is None or (step.has(1) and not _is_true(step.value(1))):
        raise UnfixedError("data ends it, and it meets a dimension that varies")
    states = [step.value(i) for i in range(2, len(step.inputs))]
    number = Value(writer.fresh("number"), step.value(0).element, (), ())
    goes = Value(writer.fresh("goes"), BOOL, (), ())
    given = [_argument(writer, "state", state) for state in states]
    names = [item.name for item in body.input]
    inner, results = nested.written(body, dict(zip(names, [number, goes, *given], strict=True)))
    if not _is_true(results[0]) and results[0].name != goes.name:
        raise UnfixedError("data ends it, and it meets a dimension that varies")
    after, rows = results[1 : 1 + len(states)], results[1 + len(states) :]
    inside = inner.emit("Less", number, inner.length(count))
    after = [_kept(inner, inside, old, new) for old, new in zip(given, after, strict=True)]
    on = inner.emit("Identity", goes)
    graph = _graph(inner, "body", [number, goes, *given], [on, *after, *rows])
    most = writer.constant(largest(count))
    made = step.again(most, writer.constant(True, bool), *states, body=graph)
    return _outputs(writer, made, states, rows, count)


def _is_true(value: Value) -> bool:
    return value.content is not None and bool(value.content.all())


def _outputs(
    writer: Writer, made: list[Value], states: list[Value], rows: list[Value], count: Size
) -> list[Value]:
    found = [_like(writer, one, state) for one, state in zip(made, states, strict=False)]
    stacked = zip(made[len(states) :], rows, strict=True)
    return found + [_like(writer, one, row, (count, *row.sizes)) for one, row in stacked]


def _scan(nested: Nested) -> list[Value]:
    step, writer, body = nested.step, nested.step.writer, nested.graph("body")
    scanned = int(step.get("num_scan_inputs"))
    held = len(step.inputs) - scanned
    states = [step.value(i) for i in range(held)]
    sequences = [step.value(i) for i in range(held, len(step.inputs))]
    words = ("scan_input_axes", "scan_output_axes")
    if any(axis for word in words for axis in step.get(word) or ()):
        raise UnfixedError("it scans another dimension than the first")
    rest = len(body.output) - held
    ways = [*(step.get("scan_input_directions") or [0] * scanned)]
    ways += step.get("scan_output_directions") or [0] * rest
    count = sequences[0].sizes[0]
    room = sequences[0].buffer[0]
    if len(set(ways)) > 1 and not isinstance(count, int):
        raise UnfixedError("it scans one sequence forwards and another one backwards")
    if not all(same(count, one.sizes[0]) and one.buffer[0] == room for one in sequences):
        raise UnfixedError("its sequences differ in length")
    given = [_argument(writer, "state", state) for state in states]
    slices = [
        Value(writer.fresh("slice"), one.element, one.sizes[1:], one.buffer[1:])
        for one in sequences
    ]
    names = [item.name for item in body.input]
    inside = Value(writer.fresh("inside"), BOOL, (), ())
    inner, results = nested.written(body, dict(zip(names, [*given, *slices], strict=True)))
    inner.values[inside.name] = inside
    after = [_kept(inner, inside, old, new) for old, new in zip(given, results, strict=False)]
    rows = results[held:]
    graph = _graph(inner, "body", [*given, *slices, inside], [*after, *rows])
    ways.insert(scanned, ways[0])
    into, out = ways[: scanned + 1], ways[scanned + 1 :] or None
    made = step.again(
        *states, *sequences, writer.valid(count, room), body=graph,
        num_scan_inputs=scanned + 1, scan_input_axes=None, scan_output_axes=None,
        scan_input_directions=into, scan_output_directions=out,
    )  # fmt: skip
    return _outputs(writer, made, states, rows, count)
