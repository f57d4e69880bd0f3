"""Parts of a graph that stay ONNX: which nodes form one, and each as a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.base.arrays import numpy_dtype
from edgekit.base.tensors import TensorSpec
from edgekit.models.onnx.graph import all_nodes, domain_of, opsets_of, reads

LATEST_IR = 10
"""The version of a part's file, which each release of onnxruntime since 1.19 reads."""


def parts_of(
    nodes: Sequence[onnx.NodeProto], taken: Iterable[int], inside: Callable[[str], bool]
) -> list[list[int]]:
    """Return the numbers of the ordered nodes in each part: the largest connected sets of taken
    nodes that can each be one call.

    A value that is `inside` can't leave a part, so its producer and its readers are in the same
    one, and so is each node between them.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    edges = [
        (producer[name], index, name)
        for index, node in enumerate(nodes)
        for name in sorted(reads(node))
        if name in producer
    ]
    units = _Units(len(nodes), [(source, target) for source, target, _ in edges])
    chosen = set(taken)
    for source, target, name in edges:
        if inside(name):
            units.merge((source, target))
    while cycle := units.cycle():
        units.merge(cycle)
    for source, target, _ in edges:
        if source in chosen and target in chosen:
            units.merge_if_possible(source, target)
    whole: dict[int, list[int]] = {}
    for index in range(len(nodes)):
        whole.setdefault(units.of(index), []).append(index)
    return [members for members in whole.values() if chosen.intersection(members)]


class _Units:
    """Sets of nodes, each of which becomes one call or one operator."""

    def __init__(self, count: int, edges: Sequence[tuple[int, int]]) -> None:
        self._unit = list(range(count))
        self._edges = edges

    def of(self, node: int) -> int:
        while self._unit[node] != node:
            node = self._unit[node]
        return node

    def merge(self, nodes: Iterable[int]) -> None:
        first, *others = sorted({self.of(node) for node in nodes})
        for other in others:
            self._unit[other] = first

    def merge_if_possible(self, one: int, other: int) -> None:
        before = self._unit.copy()
        if self.of(one) != self.of(other):
            self.merge((one, other))
            if self.cycle():
                self._unit = before

    def cycle(self) -> list[int]:
        """Return units that need each other's results; empty if there are none."""
        needs: dict[int, set[int]] = {}
        for source, target in self._edges:
            if self.of(source) != self.of(target):
                needs.setdefault(self.of(target), set()).add(self.of(source))
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []


def model_of(
    proto: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[TensorSpec],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[TensorSpec | str],
) -> onnx.ModelProto:
    """Return nodes of a model as a model; the type of an output may be unknown."""
    part = onnx.ModelProto(ir_version=min(proto.ir_version, LATEST_IR), producer_name="edgekit")
    part.opset_import.extend(helper.make_opsetid(*item) for item in _oldest(proto, nodes).items())
    part.functions.extend(proto.functions)
    graph = part.graph
    graph.name = "part"
    graph.node.extend(nodes)
    graph.input.extend(map(_declared, inputs))
    graph.output.extend(
        onnx.ValueInfoProto(name=item) if isinstance(item, str) else _declared(item)
        for item in outputs
    )
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name, array in constants.items():
        graph.initializer.append(stored.get(name) or numpy_helper.from_array(array, name))
    return part


def _oldest(proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """Return the oldest operator sets in which the nodes are what they are in the model: a release
    of onnxruntime refuses sets that are newer than itself."""
    found = {}
    for domain, version in opsets_of(proto).items():
        since = [
            _since(node.op_type, domain, version)
            for node in all_nodes(nodes)
            if domain_of(node) == domain
        ]
        found[domain] = max(since, default=version)
    return found


def _since(operator: str, domain: str, version: int) -> int:
    if not onnx.defs.has(operator, version, domain):
        return version
    return int(onnx.defs.get_schema(operator, version, domain).since_version)


def _declared(spec: TensorSpec) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(spec.dtype))
    return helper.make_tensor_value_info(spec.name, kind, spec.shape)
