"""Walk over a graph once and write it with fixed sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import numpy_helper

from edgekit.base.errors import EdgekitError, UnsupportedModelError
from edgekit.base.options import option
from edgekit.models.onnx import bodies, folding
from edgekit.models.onnx.graph import domain_of, in_order, label, needed, subgraphs
from edgekit.models.onnx.lengths import contents, control
from edgekit.models.onnx.lengths.rules import RULES, rule_for
from edgekit.models.onnx.lengths.rules.selecting import SELECTING, selects
from edgekit.models.onnx.lengths.step import Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value, known
from edgekit.models.onnx.lengths.writer import SMALL, Writer, renamed

Scope = dict[str, Value]


@dataclass
class Walk:
    """The state of one rewrite."""

    writer: Writer
    depth: int = 0

    def run(
        self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], scope: Scope
    ) -> list[Value]:
        """Write nodes, and return the outputs' values."""
        for node in needed(in_order(nodes)[0], outputs):
            inputs = tuple(scope[name] if name else None for name in node.input)
            for name, value in zip(node.output, self._results(node, inputs, scope), strict=False):
                if name:
                    scope[name] = value
        return [scope[name] for name in outputs]

    def _results(
        self, node: onnx.NodeProto, inputs: tuple[Value | None, ...], scope: Scope
    ) -> list[Value]:
        writer = self.writer
        if not self.depth:
            writer.layer = label(node)
        names = tuple(
            name if not name or not self.depth else writer.fresh(f"{writer.layer}/{name}")
            for name in node.output
        )
        step = Step(node, inputs, names, writer)
        try:
            return self._converted(step, scope)
        except UnfixedError as refusal:
            raise UnsupportedModelError(
                f"{node.op_type} (node {label(node)!r}) can't be given a size that varies: "
                f"{refusal}",
                hint=f"give the model's inputs fixed sizes with {option('shape')}",
            ) from refusal
        except EdgekitError:
            raise
        except (ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
            raise UnsupportedModelError(
                f"{node.op_type} (node {label(node)!r}) can't be given a size that varies",
                hint=f"give the model's inputs fixed sizes with {option('shape')}",
                details=(f"{type(error).__name__}: {error}",),
            ) from error

    def _converted(self, step: Step, scope: Scope) -> list[Value]:
        node, domain = step.node, domain_of(step.node)
        if list(subgraphs(node)):
            return self._with_graphs(step, scope)
        if domain == "" and node.op_type in ("Shape", "Size") and step.value().shape is not None:
            return [contents.shape_of(step)]
        folded = self._folded(step)
        if folded is not None:
            return folded
        if any(value is not None and value.is_symbolic for value in step.inputs):
            found = contents.computed(step)
            if found is not None:
                return [found]
        if selects(step, (domain, node.op_type)):
            chosen = SELECTING[domain, node.op_type][0](step)
            return chosen if isinstance(chosen, list) else [chosen]
        rule = rule_for(step)
        # ONNX infers nothing of operators outside of its own domain: their rules say it.
        is_inferred = not domain or rule is None
        if is_inferred and all(value is None or value.is_plain for value in step.inputs):
            return step.again(*step.inputs)
        made = None if rule is None else rule(step)
        if made is not None:
            return made if isinstance(made, list) else [made]
        return self._written_out(step)

    def _folded(self, step: Step) -> list[Value] | None:
        """Compute a node of small known inputs."""
        values = [value for value in step.inputs if value is not None]
        if not all(value.content is not None and not value.is_symbolic for value in values):
            return None
        inputs = [None if value is None else value.content for value in step.inputs]
        if step.node.op_type == "Identity" and inputs[0] is not None:
            return [known(inputs[0], step.value().element, step.outputs[0])]
        if folding.announced_elements(step.node.op_type, inputs) > SMALL:
            return None
        found = folding.fold(step.node, inputs, self.writer.opsets)
        if found is None or any(array.size > SMALL for array in found):
            return None
        return [
            known(array, folding.element_type(str(array.dtype)), name)
            for name, array in zip(step.outputs, found, strict=True)
        ]

    def _with_graphs(self, step: Step, scope: Scope) -> list[Value]:
        """Write a node with graphs of its own."""

        def run(writer: Writer, graph: onnx.GraphProto, inner: Scope) -> list[Value]:
            outer, self.writer = self.writer, writer
            self.depth += 1
            try:
                for tensor in graph.initializer:
                    content = numpy_helper.to_array(tensor)
                    inner[tensor.name] = known(content, tensor.data_type)
                return self.run(graph.node, [item.name for item in graph.output], inner)
            finally:
                self.writer = outer
                self.depth -= 1

        return control.written(control.Nested(step, scope, run))

    def _written_out(self, step: Step) -> list[Value]:
        """Write an operator without a rule as ONNX defines it in simpler operators."""
        node, domain = step.node, domain_of(step.node)
        types = [_type_of(value) for value in step.inputs]
        body = bodies.body_of(node, self.writer.opsets.get(domain, 1), types)
        if body is None:
            known_rule = (domain, node.op_type) in RULES
            pairs = zip(node.input, step.inputs, strict=True)
            other = next((n for n, v in pairs if v is not None and v.padded), "")
            what = f"where its input {other!r} varies" if known_rule else "for this operator"
            raise UnfixedError(f"edgekit has no rule {what}")
        inner: Scope = {
            name: value
            for name, value in zip(body.inputs, step.inputs, strict=False)
            if value is not None
        }
        missing = [name for name in body.inputs if name not in inner]
        nodes = [
            renamed(one, ["" if name in missing else name for name in one.input])
            for one in body.nodes
        ]
        asked = [a for a, name in zip(body.outputs, step.outputs, strict=False) if name]
        self.depth += 1
        outer, self.writer.opsets = self.writer.opsets, {**self.writer.opsets, **body.opsets}
        try:
            values = dict(zip(asked, self.run(nodes, asked, inner), strict=True))
        finally:
            self.depth -= 1
            self.writer.opsets = outer
        return [values.get(name, Value("", 0, None)) for name in body.outputs]


def stored(tensor: onnx.TensorProto) -> Value:
    """Return a constant of the file; its content only if it is small."""
    shape = tuple(tensor.dims)
    value = Value(tensor.name, tensor.data_type, shape, shape)
    count = 1
    for extent in shape:
        count *= extent
    if count <= SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
        return replace(value, content=numpy_helper.to_array(tensor))
    return value


def _type_of(value: Value | None) -> onnx.TypeProto:
    if value is None or value.shape is None:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(value.element, value.buffer)
