"""Queries on an ONNX graph: order, names read, nested nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from edgekit.base.errors import ModelError


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """Map domains to versions; the default domain is ""."""
    found = {_domain(item.domain): int(item.version) for item in model.opset_import}
    found.setdefault("", 1)
    return found


def domain_of(node: onnx.NodeProto) -> str:
    return _domain(node.domain)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def label(node: onnx.NodeProto) -> str:
    """Return the node's name, or that of its first output if it has none."""
    return node.name or next((name for name in node.output if name), "unnamed")


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those inside them, at any depth."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def reads(node: onnx.NodeProto) -> set[str]:
    """Yield the names that a node reads, including those captured by its subgraphs."""
    names = {name for name in node.input if name}
    for graph in subgraphs(node):
        names |= captured(graph)
    return names


def captured(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a subgraph reads from the graph around it."""
    own = {item.name for item in graph.input} | {item.name for item in graph.initializer}
    wanted = {item.name for item in graph.output}
    for node in graph.node:
        wanted |= reads(node)
        own.update(node.output)
    return wanted - own


def in_order(nodes: Sequence[onnx.NodeProto]) -> tuple[list[onnx.NodeProto], bool]:
    """Return the nodes, each after those that it reads, and whether the order changed.

    ONNX requires this order, but some exporters break it.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    before = [
        {producer[name] for name in reads(node) if name in producer} - {index}
        for index, node in enumerate(nodes)
    ]
    if all(max(earlier, default=-1) < index for index, earlier in enumerate(before)):
        return list(nodes), False
    ordered: list[onnx.NodeProto] = []
    state: dict[int, bool] = {}
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            index = stack[-1]
            if index in state:
                stack.pop()
                if not state[index]:
                    state[index] = True
                    ordered.append(nodes[index])
                continue
            state[index] = False
            waiting = [earlier for earlier in sorted(before[index]) if not state.get(earlier)]
            if any(earlier in state for earlier in waiting):
                raise ModelError(
                    f"the graph has a cycle through node {label(nodes[index])!r}",
                    hint="export the model again",
                )
            stack.extend(reversed(waiting))
    return ordered, True


def needed(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return those of the ordered nodes on which the outputs depend."""
    wanted = set(outputs)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if any(name in wanted for name in node.output):
            wanted |= reads(node)
            kept.append(node)
    kept.reverse()
    return kept
