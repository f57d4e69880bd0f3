"""Writes the nodes of a graph with fixed sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.base.wording import unique_name
from edgekit.models.onnx.graph import all_nodes
from edgekit.models.onnx.lengths.extents import Atom, Composed, Length, Size, bounds
from edgekit.models.onnx.lengths.values import UnfixedError, Value, known

INT64, BOOL = int(TensorProto.INT64), int(TensorProto.BOOL)
SMALL = 4096
"""The most elements of a tensor whose content is looked at."""

Operand = Value | str | None


class Writer:
    """The nodes and constants written so far, and what is known of them."""

    def __init__(self, opsets: Mapping[str, int], taken: Iterable[str]) -> None:
        self.opsets = dict(opsets)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.layer = ""
        """The name of the node of the model that is being written."""
        self.values: dict[str, Value] = {}
        """The values with a name in the written graph."""
        self._taken = set(taken)
        self._made: dict[Any, Value] = {}

    @property
    def opset(self) -> int:
        return self.opsets[""]

    def fresh(self, wish: str) -> str:
        """Return a name that nothing else has."""
        return unique_name(wish, self._taken)

    def add(self, node: onnx.NodeProto) -> list[Value]:
        """Write a node whose inputs are names in the written graph, and infer its outputs."""
        self.nodes.append(node)
        types = self._inferred(node)
        results = []
        for name in node.output:
            value = Value(name, *types.get(name, (0, None, ())))
            if name:
                self.values[name] = value
            results.append(value)
        return results

    def several(
        self, operator: str, *inputs: Operand, outputs: int = 1, **attributes: Any
    ) -> list[Value]:
        """Write a node with new outputs; an attribute that is None is left out."""
        given = {key: value for key, value in attributes.items() if value is not None}
        name = self.fresh(f"{self.layer}/{operator}" if self.layer else operator)
        made = [self.fresh(name + (f":{i}" if i else "")) for i in range(1, outputs)]
        node = helper.make_node(
            operator, [self.named(one) for one in inputs], [name, *made], name=name, **given
        )
        return self.add(node)

    def emit(self, operator: str, *inputs: Operand, **attributes: Any) -> Value:
        return self.several(operator, *inputs, **attributes)[0]

    def named(self, operand: Operand) -> str:
        """Return the name of a value, for which a known content is written first."""
        if operand is None:
            return ""
        if isinstance(operand, str):
            return operand
        if not operand.name:
            if operand.content is None:
                raise UnfixedError("one of its inputs is missing")
            if operand.is_symbolic:
                operand.name = self._computed(operand).name
            else:
                wish = operand.wish or "constant"
                operand.name = wish if operand.wish else self.fresh(wish)
                self.initializers.append(numpy_helper.from_array(operand.content, operand.name))
            self.values.setdefault(operand.name, operand)
        return operand.name

    def constant(self, content: Any, dtype: Any = np.int64) -> Value:
        """Return a constant; equal ones are written once."""
        array = np.asarray(content, dtype)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = known(array, int(helper.np_dtype_to_tensor_dtype(array.dtype)))
        return self._made[key]

    def once(self, key: Any, make: Any) -> Value:
        """Return what `make` wrote for an equal key before, else what it writes now."""
        if key not in self._made:
            self._made[key] = make()
        found: Value = self._made[key]
        return found

    def inside(self) -> Writer:
        """Return a writer of a graph inside this one, which may read what is written so far."""
        writer = Writer(self.opsets, ())
        writer.layer, writer.initializers, writer._taken = (
            self.layer,
            self.initializers,
            self._taken,
        )
        writer.values, writer._made = dict(self.values), dict(self._made)
        return writer

    def rename(self, old: str, new: str) -> None:
        """Give what the written nodes make and read under a name another one."""
        for node in all_nodes(self.nodes):
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new

    def length(self, size: Size) -> Value:
        """Return a size as an int64 scalar."""
        if isinstance(size, int):
            return self.constant(size)
        return self.once(("length", size), lambda: self._length(size))

    def place(self, length: Length, value: Value) -> None:
        """Say which scalar holds a length."""
        self._made["atom", length] = value

    def valid(self, size: Size, room: int) -> Value:
        """Return a vector of bools that says which places of a dimension are filled."""

        def make() -> Value:
            return self.emit("Less", self.constant(np.arange(room)), self.length(size))

        return self.once(("valid", size, room), make)

    def _length(self, size: Size) -> Value:
        assert not isinstance(size, int)
        total: Value | None = None
        for term, factor in size.terms:
            part: Value | None = None
            for atom in term:
                value = self.once(("atom", atom), lambda atom=atom: self._atom(atom))
                part = value if part is None else self.emit("Mul", part, value)
            if part is None:
                part = self.constant(factor)
            elif factor != 1:
                part = self.emit("Mul", part, self.constant(factor))
            total = part if total is None else self.emit("Add", total, part)
        assert total is not None
        return total

    def _atom(self, atom: Atom) -> Value:
        if not isinstance(atom, Composed):
            raise UnfixedError(f"nothing computes the length {atom.name!r}")
        first, second = self.length(atom.first), self.length(atom.second)
        if atom.operator != "//":
            return self.emit(atom.operator.capitalize(), first, second)
        low = bounds(atom.first)[0]
        if low >= 0:
            return self.emit("Div", first, second)
        if not isinstance(atom.second, int):
            raise UnfixedError("a size in it is divided by another that varies")
        # ONNX divides towards zero: a multiple of the divisor makes the number positive.
        times = -(low // atom.second)
        shifted = self.emit("Add", first, self.constant(times * atom.second))
        return self.emit("Sub", self.emit("Div", shifted, second), self.constant(times))

    def _computed(self, value: Value) -> Value:
        """Write what computes a tensor of sizes."""
        assert value.content is not None
        flat = value.content.reshape(-1)
        one = self.constant([1])
        parts = [self.emit("Reshape", self.length(item), one) for item in flat]
        joined = parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=0)
        if value.content.ndim != 1:
            joined = self.emit("Reshape", joined, self.constant(value.content.shape))
        return joined if value.element == INT64 else self.emit("Cast", joined, to=value.element)

    def _inferred(
        self, node: onnx.NodeProto
    ) -> Mapping[str, tuple[int, tuple[int, ...] | None, tuple[int, ...]]]:
        """Return type, shape and buffer of outputs, as ONNX implies them from the buffers."""
        version = self.opsets.get(node.domain, 0)
        if not version or not onnx.defs.has(node.op_type, version, node.domain):
            return {}
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        types, data = {}, {}
        for name in filter(None, node.input):
            value = self.values.get(name)
            if value is None or not value.element:
                continue
            shape = None if value.shape is None else value.buffer
            types[name] = helper.make_tensor_type_proto(value.element, shape)
            content = value.content
            if content is not None and not value.is_symbolic and content.size <= SMALL:
                data[name] = numpy_helper.from_array(content, name)
        opsets = [helper.make_opsetid(*item) for item in self.opsets.items()]
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=opsets
            )
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
            return {}
        return {name: _of_type(kind) for name, kind in found.items()}


def _of_type(kind: onnx.TypeProto) -> tuple[int, tuple[int, ...] | None, tuple[int, ...]]:
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return int(tensor.elem_type), None, ()
    shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    return int(tensor.elem_type), shape, shape


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes; text as str, numbers as a list."""
    found = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return {
        key: value.decode() if isinstance(value, bytes) else value for key, value in found.items()
    }


def renamed(
    node: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str] | None = None
) -> onnx.NodeProto:
    """Return a copy of a node with other inputs."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(inputs)
    if outputs is not None:
        del copy.output[:]
        copy.output.extend(outputs)
    return copy
