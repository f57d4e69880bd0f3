"""Nodes that can't be compiled become parts that stay ONNX, for a backend that runs ONNX.

An import that may leave nodes goes on after each that it can't convert: onnxruntime tells what its
results are. A node that reads what no device holds (text, a sequence, a tensor whose size depends
on the data) is left as well. If any node is left, the nodes are put into parts, each part becomes
one node of the graph, and the graph is imported again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper
from tvm import relax

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tensors import TensorSpec
from edgekit.models.binding import Bound
from edgekit.models.leftovers import Leftover, LeftoverNode
from edgekit.models.onnx.graph import (
    all_nodes,
    domain_of,
    in_order,
    label,
    needed,
    reads,
    subgraphs,
)
from edgekit.models.onnx.leftover_parts import model_of, parts_of
from edgekit.models.onnx.leftover_types import UNKNOWN, NotRunError, ValueType, computed, types_of
from edgekit.models.onnx.parameters import DATA_DEPENDENT
from edgekit.models.onnx.values import Value, dtype_of, is_known, shape_of

PART_DOMAIN = "edgekit.part"


@dataclass(frozen=True)
class Inside:
    """A value that stays inside a part."""

    name: str
    why: str
    """The end of a sentence about it: "is text"."""
    producer: str
    """The name of the node that makes it."""


@dataclass
class LeftoverImport:
    """What an import leaves, and the parts that a later one calls."""

    proto: onnx.ModelProto
    block: relax.BlockBuilder
    bound: Bound
    parts: Mapping[str, Leftover] = field(default_factory=dict)
    """The parts by their first result."""
    left: dict[str, str] = field(default_factory=dict)
    """The reasons of the nodes that were left, by the name of their first result."""
    found: dict[str, ValueType] | None = None
    """What onnxruntime says of all values; None until a node is left."""
    values: dict[str, Value] = field(default_factory=dict)
    """The values of the main graph."""

    def results(
        self,
        node: onnx.NodeProto,
        scope: Mapping[str, Value],
        convert: Callable[[], list[Value]],
    ) -> list[Value]:
        """Convert a node of the main graph, or leave it."""
        if node.domain == PART_DOMAIN:
            self.block.node = label(node)
            return self._called(self.parts[_first(node)], scope)
        read = sorted(name for name in reads(node) if name in scope)
        self.values.update({name: scope[name] for name in read})
        results = self._converted_or_left(node, [scope[name] for name in read], convert)
        self.values.update(zip(node.output, results, strict=False))
        return results

    def _converted_or_left(
        self, node: onnx.NodeProto, read: Sequence[Value], convert: Callable[[], list[Value]]
    ) -> list[Value]:
        held = next((value for value in read if isinstance(value, Inside)), None)
        if held is None:
            try:
                return convert()
            except UnsupportedModelError as error:
                refusal = error
            reason = refusal.message.partition(" can't be compiled: ")[2] or refusal.message
        else:
            reason = f"it reads {held.name!r} of {held.producer!r}, which {held.why}"
            refusal = UnsupportedModelError(
                f"{node.op_type} (node {label(node)!r}) can't be compiled: {reason}"
            )
        return self._left(node, reason, refusal)

    def _left(
        self, node: onnx.NodeProto, reason: str, refusal: UnsupportedModelError
    ) -> list[Value]:
        """Leave a node, and return its results with the types that onnxruntime gives them. One that
        reads only what is known is computed instead."""
        if any(map(_is_random, all_nodes([node]))):
            raise refusal
        names = [name for name in node.output if name]
        try:
            inputs, constants = self._ends([node])
            if not inputs and reads(node) <= constants.keys():
                model = model_of(self.proto, [node], (), constants, names)
                known = iter(computed(model))
                return [next(known) if name else None for name in node.output]
            if self.found is None:
                self.found = self._types()
        except NotRunError as error:
            details = (*refusal.details, f"onnxruntime can't run it either: {error}")
            raise UnsupportedModelError(
                refusal.message, hint=refusal.hint, details=details
            ) from error
        self.left[names[0]] = reason
        return [self._result(name, node) if name else None for name in node.output]

    def _result(self, name: str, node: onnx.NodeProto) -> Value:
        assert self.found is not None
        found = self.found.get(name, UNKNOWN)
        if found.why_inside:
            return Inside(name, found.why_inside, label(node))
        return relax.Var(name, relax.TensorType(found.shape, found.dtype))

    def _types(self) -> dict[str, ValueType]:
        """Return what all values of the model are, by running it on samples."""
        nodes = self._needed()
        names = [name for node in nodes for name in node.output if name]
        data_dependent = {
            name for node in nodes if node.op_type in DATA_DEPENDENT for name in node.output
        }
        model = model_of(self.proto, nodes, self.bound.inputs, self.bound.constants, names)
        model.graph.initializer.extend(self.proto.graph.initializer)
        model.graph.sparse_initializer.extend(self.proto.graph.sparse_initializer)
        return types_of(model, data_dependent)

    def _needed(self) -> list[onnx.NodeProto]:
        outputs = [item.name for item in self.proto.graph.output]
        return needed(in_order(self.proto.graph.node)[0], outputs)

    def _ends(
        self, nodes: Sequence[onnx.NodeProto]
    ) -> tuple[list[TensorSpec], dict[str, np.ndarray]]:
        """Return what nodes read of others: computed tensors, and known ones."""
        own = {name for node in nodes for name in node.output}
        inputs: list[TensorSpec] = []
        constants: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(name for node in nodes for name in sorted(reads(node))):
            value = self.values.get(name)
            if name in own or value is None or isinstance(value, Inside):
                continue
            if is_known(value):
                constants[name] = value
            elif isinstance(value, tuple):
                raise NotRunError(f"{name!r} is a sequence")
            else:
                inputs.append(TensorSpec(name, dtype_of(value), shape_of(value)))
        return inputs, constants

    def rewritten(self) -> tuple[onnx.ModelProto, dict[str, Leftover]]:
        """Return the model with each part as one node, and the parts by their first result."""
        outputs = [item.name for item in self.proto.graph.output]
        nodes = self._needed()
        taken = [index for index, node in enumerate(nodes) if _first(node) in self.left]
        parts = parts_of(nodes, taken, lambda name: isinstance(self.values.get(name), Inside))
        made: dict[str, Leftover] = {}
        calls: dict[int, onnx.NodeProto] = {}
        for members in parts:
            part = self._part(nodes, members, outputs)
            call = helper.make_node(
                "Part",
                [spec.name for spec in part.inputs],
                [spec.name for spec in part.outputs],
                name=part.nodes[0].name,
                domain=PART_DOMAIN,
            )
            made[call.output[0]] = part
            calls[members[-1]] = call
        inside = {index for members in parts for index in members}
        kept = [
            calls.get(index, node)
            for index, node in enumerate(nodes)
            if index not in inside or index in calls
        ]
        model = onnx.ModelProto()
        model.CopyFrom(self.proto)
        del model.graph.node[:]
        model.graph.node.extend(in_order(kept)[0])
        return model, made

    def _part(
        self,
        nodes: Sequence[onnx.NodeProto],
        members: Sequence[int],
        outputs: Sequence[str],
    ) -> Leftover:
        own = [nodes[index] for index in members]
        others = [node for index, node in enumerate(nodes) if index not in set(members)]
        read = set(outputs).union(*map(reads, others))
        names = [name for node in own for name in node.output if name in read]
        inputs, constants = self._ends(own)
        results = [self._spec(name) for name in names]
        model = model_of(self.proto, own, inputs, constants, results)
        content = model.SerializeToString(deterministic=True)
        between = "it stands between nodes that can't be compiled"
        return Leftover(
            symbol=f"edgekit_part_{hashlib.sha256(content).hexdigest()[:16]}",
            content=content,
            inputs=tuple(inputs),
            outputs=tuple(results),
            nodes=tuple(
                LeftoverNode(
                    _operator(node),
                    label(node),
                    self._shape(_first(node)),
                    self.left.get(_first(node), between),
                )
                for node in own
            ),
        )

    def _spec(self, name: str) -> TensorSpec:
        value = self.values[name]
        return TensorSpec(name, dtype_of(value), shape_of(value))

    def _shape(self, name: str) -> tuple[int, ...]:
        value = self.values.get(name)
        return () if value is None or isinstance(value, Inside | tuple) else shape_of(value)

    def _called(self, part: Leftover, scope: Mapping[str, Value]) -> list[Value]:
        types = [relax.TensorType(spec.shape, spec.dtype) for spec in part.outputs]
        given = relax.Tuple([scope[spec.name] for spec in part.inputs])
        call = self.block.emit(relax.call_dps_packed(part.symbol, given, out_ty=types))
        if len(types) == 1:
            return [call]
        return [self.block.emit(relax.TupleGetItem(call, i)) for i in range(len(types))]


def _first(node: onnx.NodeProto) -> str:
    return next(str(name) for name in node.output if name)


def _operator(node: onnx.NodeProto) -> str:
    return f"{domain_of(node)}.{node.op_type}".lstrip(".")


def _is_random(node: onnx.NodeProto) -> bool:
    """Tell whether a node draws random numbers: no oracle can tell what is right.

    ONNX says so of each operator with a graph inside, whose nodes are looked at instead."""
    domain = domain_of(node)
    if not onnx.defs.has(node.op_type, domain) or list(subgraphs(node)):
        return False
    schema = onnx.defs.get_schema(node.op_type, domain)
    return bool(schema.node_determinism == onnx.defs.OpSchema.NodeDeterminism.NonDeterministic)
