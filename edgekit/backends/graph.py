"""One dataflow block as a graph: the nodes, and which node reads which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from edgekit.backends.base import Tensor
from edgekit.backends.node import Node
from edgekit.backends.non_finite import non_finite_sources
from edgekit.backends.quantised import kept_exact
from edgekit.base.node_names import named_after
from edgekit.compiler.macs import ShapeDependsOnDataError, macs_of_call


class Graph:
    """The nodes of a block, in the order of its bindings."""

    def __init__(self, block: Any, values: Mapping[Any, Any]) -> None:
        self.values = values
        self._index_of = {binding.var: i for i, binding in enumerate(block.bindings)}
        self._index_of_value = {binding.value: i for i, binding in enumerate(block.bindings)}
        nodes = [self._node(i, binding) for i, binding in enumerate(block.bindings)]
        self.readers: tuple[set[int], ...] = tuple(set() for _ in nodes)
        for node in nodes:
            for producer in node.reads:
                self.readers[producer].add(node.index)
        self.nodes = _named_by_readers(nodes, self.readers)
        self.kept_exact = kept_exact(nodes, values)
        """Nodes whose floats no library may round, with the reasons."""
        self.non_finite = non_finite_sources(nodes, values)
        """Nodes that may hold NaN or infinity, with the nodes that make them."""
        self._tensors: dict[Any, Tensor] = {}
        self._variables: dict[str, Any] = {}

    def index_of(self, expression: Any) -> int | None:
        """Return the index of the node that computes a variable or a value."""
        if isinstance(expression, relax.Var):
            return self._index_of.get(expression)
        return self._index_of_value.get(expression)

    def leaves_block(self, index: int) -> bool:
        """Tell whether code after the block may read the node's result."""
        return not isinstance(self.nodes[index].variable, relax.DataflowVar)

    def tensor(self, variable: Any) -> Tensor:
        """Return a variable's tensor, under a unique name."""
        found = self._tensors.get(variable)
        if found is None:
            shape = tuple(int(extent) for extent in variable.ty.shape)
            name = f"{variable.name}.{len(self._tensors)}"
            found = self._tensors[variable] = Tensor(name, shape, str(variable.ty.dtype))
            self._variables[name] = variable
        return found

    def variable(self, tensor: Tensor) -> Any:
        return self._variables[tensor.name]

    def _node(self, index: int, binding: Any) -> Node:
        value = binding.value
        is_call = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
        return Node(
            index=index,
            variable=binding.var,
            value=value,
            operator=str(value.op.name).removeprefix("relax.") if is_call else "",
            model_node=named_after(str(binding.var.name)),
            reads=tuple(
                dict.fromkeys(
                    self._index_of[variable]
                    for variable in relax.analysis.free_vars(value)
                    if variable in self._index_of
                )
            ),
            macs=_macs(value) if is_call else 0,
        )


def _named_by_readers(nodes: Sequence[Node], readers: Sequence[set[int]]) -> tuple[Node, ...]:
    """Give unnamed nodes the name of their reader: importers name only what they bind, and TVM
    splits that into smaller expressions."""
    named = list(nodes)
    for node in reversed(nodes):
        if not node.model_node:
            owners = {named[reader].model_node for reader in readers[node.index]}
            if len(owners) == 1:
                named[node.index] = replace(node, model_node=owners.pop())
    return tuple(named)


def items_of(graph: Graph, index: int) -> Iterator[tuple[int, Any]]:
    """List the nodes that take an item of the tuple that a node computes: (item, node)."""
    for reader in sorted(graph.readers[index]):
        value = graph.nodes[reader].value
        if isinstance(value, relax.TupleGetItem):
            yield int(value.index), graph.nodes[reader]


def _macs(call: Any) -> int:
    try:
        return macs_of_call(call)
    except ShapeDependsOnDataError:
        return 0
