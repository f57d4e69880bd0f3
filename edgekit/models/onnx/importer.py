"""Convert ONNX to Relax in one walk over the graph.

Each node's inputs are either known (numpy) or computed on the device (Relax). A node whose inputs
are all known is folded. Any other goes to its operator's converter or, without one, to the
operator's definition in simpler operators. Because every input shape is known, so is every other,
and the result has no dynamic shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax

from edgekit.base.errors import EdgekitError, ModelError, UnsupportedModelError
from edgekit.base.options import option
from edgekit.models.naming import NamingBuilder
from edgekit.models.onnx import bodies, control, folding
from edgekit.models.onnx.binding import DEVICE_DTYPES
from edgekit.models.onnx.contradictions import contradiction
from edgekit.models.onnx.graph import domain_of, in_order, label, needed, subgraphs
from edgekit.models.onnx.leftovers import LeftoverImport
from edgekit.models.onnx.node import Converter, Node, NotKnownError, RefusedError
from edgekit.models.onnx.operators import CONVERTERS, REFUSED
from edgekit.models.onnx.values import Value, dtype_of, is_known, shape_of

Functions = Mapping[tuple[str, str], onnx.FunctionProto]

LONGEST_PROGRAM = 200_000
"""The most nodes of a model with its functions and loops unrolled: functions that call functions
can make a small file endless."""
FITTING_SHAPES = "this part of the model is made for other shapes: give its inputs others with {}"
LARGEST_DENSE = 1 << 29
"""The most elements of a sparse tensor in dense form."""


@dataclass
class Importer:
    """The state of one import."""

    block: NamingBuilder
    functions: Functions
    on_node: Callable[[onnx.NodeProto], None]
    repairs: list[str] = field(default_factory=list)
    folded: int = 0
    """The number of nodes computed on import."""
    leftovers: LeftoverImport | None = None
    """What becomes of nodes that can't be converted; None refuses the model."""
    depth: int = 0
    nodes: int = 0
    """The number of nodes visited so far, in every call and iteration."""

    def repaired(self, sentence: str) -> None:
        if sentence not in self.repairs:
            self.repairs.append(sentence)

    def run_graph(
        self,
        graph: onnx.GraphProto,
        arguments: Sequence[Value],
        outer: Mapping[str, Value],
        opsets: Mapping[str, int],
    ) -> list[Value]:
        """Import a graph's nodes and return the values of its outputs."""
        scope: dict[str, Value] = dict(outer)
        scope.update({tensor.name: to_array(tensor) for tensor in graph.initializer})
        scope.update({item.values.name: dense_array(item) for item in graph.sparse_initializer})
        scope.update(zip((item.name for item in graph.input), arguments, strict=False))
        return self.run_nodes(graph.node, [item.name for item in graph.output], scope, opsets)

    def run_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        outputs: Sequence[str],
        scope: dict[str, Value],
        opsets: Mapping[str, int],
    ) -> list[Value]:
        ordered, moved = in_order(nodes)
        if moved:
            self.repaired("the nodes were put in an order in which each follows its inputs")
        for node in needed(ordered, outputs):
            self.run_node(node, scope, opsets)
        missing = [name for name in outputs if name not in scope]
        if missing:
            raise ModelError(
                f"nothing computes the graph output {missing[0]!r}", hint="export the model again"
            )
        return [scope[name] for name in outputs]

    def run_node(
        self, node: onnx.NodeProto, scope: dict[str, Value], opsets: Mapping[str, int]
    ) -> None:
        if self.leftovers is None or self.depth:
            results = self._results(node, scope, opsets)
        else:
            convert = partial(self._results, node, scope, opsets)
            results = self.leftovers.results(node, scope, convert)
        for name, value in zip(node.output, results, strict=False):
            if name:
                scope[name] = value

    def _results(
        self, node: onnx.NodeProto, scope: dict[str, Value], opsets: Mapping[str, int]
    ) -> list[Value]:
        self.depth += 1
        self.nodes += 1
        if self.depth == 1:
            self.on_node(node)
            self.block.node = label(node)
        try:
            if self.nodes > LONGEST_PROGRAM:
                raise RefusedError(f"written out, the model is longer than {LONGEST_PROGRAM} nodes")
            return self._convert(node, scope, opsets)
        except RefusedError as refusal:
            raise refused(node, refusal.reason, refusal.hint) from refusal
        except NotKnownError as unknown:
            raise refused(
                node,
                f"its input {node.input[unknown.position]!r} has to be known when the model is "
                "compiled, and is computed on the device",
                "if a model input decides it, bind that one with "
                f"{option('constant', 'NAME=VALUE')}",
            ) from unknown
        except EdgekitError:
            raise
        except Exception as error:
            said = self._contradiction(node, scope)
            if said is not None:
                raise refused(node, said, FITTING_SHAPES.format(option("shape"))) from error
            raise UnsupportedModelError(
                f"{node.op_type} (node {label(node)!r}) can't be compiled",
                hint="report this model: edgekit should have said why",
                details=(f"{type(error).__name__}: {first_line(error)}",),
            ) from error
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.block.node = ""

    @staticmethod
    def _contradiction(node: onnx.NodeProto, scope: Mapping[str, Value]) -> str | None:
        values = [scope.get(name) for name in node.input]
        shapes = [None if v is None or isinstance(v, tuple) else shape_of(v) for v in values]
        return contradiction(node.op_type, node.input, shapes, attributes_of(node))

    def _convert(
        self, node: onnx.NodeProto, scope: Mapping[str, Value], opsets: Mapping[str, int]
    ) -> list[Value]:
        domain, operator = domain_of(node), node.op_type
        inputs = tuple(self._look_up(name, node, scope) for name in node.input)
        function = self.functions.get((domain, operator))
        if function is not None:
            self.repaired("functions of the model were written out where they are called")
            return self._run_body(node, bodies.body_from(function, node), inputs, opsets)
        if domain == "" and operator in control.CONTROL:
            walked = control.ControlNode(self, node, inputs, scope, opsets)
            return control.CONTROL[operator](walked)
        if not list(subgraphs(node)) and all(v is None or is_known(v) for v in inputs):
            folded = folding.fold(node, inputs, opsets)
            if folded is not None:
                self.folded += node.op_type != "Constant"
                return list(folded)
        if (domain, operator) in REFUSED:
            raise RefusedError(*REFUSED[domain, operator])
        converter = CONVERTERS.get((domain, operator))
        if converter is not None:
            return self._run_converter(converter, node, inputs, opsets[domain])
        body = bodies.body_of(node, opsets.get(domain, 1), [type_proto(v) for v in inputs])
        if body is None:
            raise RefusedError("edgekit has no way to compile this operator")
        self.repaired(f"{operator} was written out in simpler operators, as ONNX defines it")
        return self._run_body(node, body, inputs, opsets)

    def _look_up(self, name: str, node: onnx.NodeProto, scope: Mapping[str, Value]) -> Value:
        if not name:
            return None
        if name not in scope:
            raise ModelError(
                f"node {label(node)!r} reads {name!r}, which nothing computes",
                hint="export the model again",
            )
        return scope[name]

    def _run_converter(
        self, converter: Converter, node: onnx.NodeProto, inputs: tuple[Value, ...], opset: int
    ) -> list[Value]:
        view = Node(
            operator=node.op_type,
            name=label(node),
            opset=opset,
            inputs=inputs,
            outputs=tuple(node.output),
            attributes=attributes_of(node),
            block=self.block,
            repaired=self.repaired,
        )
        results = converter(view)
        if not isinstance(results, list):
            results = [results]
        return [self.settle(value) for value in results]

    def settle(self, value: Value) -> Value:
        """Bind what a converter returned to a variable and check that its shape is known."""
        if value is None or is_known(value):
            return value
        if isinstance(value, tuple):
            return tuple(self.settle(item) for item in value)
        if not isinstance(value, relax.Var):
            value = self.block.emit(value)
        try:
            shape_of(value)
        except (AttributeError, TypeError) as error:
            raise RefusedError("the size of its output depends on the data") from error
        if dtype_of(value) not in DEVICE_DTYPES:
            raise RefusedError(f"it computes in {dtype_of(value)}, which devices don't run")
        return value

    def _run_body(
        self,
        node: onnx.NodeProto,
        body: bodies.Body,
        inputs: Sequence[Value],
        opsets: Mapping[str, int],
    ) -> list[Value]:
        scope: dict[str, Value] = dict.fromkeys(body.inputs)
        scope.update(zip(body.inputs, inputs, strict=False))
        asked = [
            formal for formal, actual in zip(body.outputs, node.output, strict=False) if actual
        ]
        values = dict(
            zip(
                asked,
                self.run_nodes(body.nodes, asked, scope, {**opsets, **body.opsets}),
                strict=True,
            )
        )
        return [values.get(formal) for formal in body.outputs]


def refused(node: onnx.NodeProto, reason: str, hint: str | None) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{node.op_type} (node {label(node)!r}) can't be compiled: {reason}", hint=hint
    )


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else "no message"


def to_array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"the values of tensor {tensor.name!r} don't fit its shape or type",
            hint="the file is damaged: copy or export the model again",
            details=(first_line(error),),
        ) from error


def dense_array(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """Return a sparse tensor in dense form."""
    values, indices = to_array(sparse.values), to_array(sparse.indices)
    dims = tuple(sparse.dims)
    try:
        if min(dims, default=0) < 0 or math.prod(dims) > LARGEST_DENSE:
            raise ValueError(f"its shape is {list(dims)}")
        dense = np.zeros(dims, values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise ModelError(
            f"the sparse tensor {sparse.values.name!r} can't be written out in full",
            hint="the file is damaged: copy or export the model again",
            details=(first_line(error),),
        ) from error
    return dense


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return attributes as plain Python values; tensors as arrays, text as str."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, onnx.TensorProto):
            value = to_array(value)
        elif isinstance(value, onnx.SparseTensorProto):
            value = dense_array(value)
        elif attribute.type == onnx.AttributeProto.STRINGS:
            value = tuple(item.decode() for item in value)
        elif attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            value = tuple(value)
        found[attribute.name] = value
    return found


def type_proto(value: Value) -> onnx.TypeProto:
    """Return the ONNX type of a value, which context-dependent bodies need."""
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, tuple):
        inner = type_proto(value[0]) if value else onnx.TypeProto()
        return onnx.helper.make_sequence_type_proto(inner)
    element = folding.element_type(dtype_of(value))
    return onnx.helper.make_tensor_type_proto(element, shape_of(value))
