"""Write a graph whose sizes vary as one with fixed sizes, and lengths.

A dimension that varies has its largest size; its true size is a length, an int64 scalar. What lies
beyond a length may be anything and reaches no element before it. An operator for which that is
not known is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
import onnx.inliner
import onnx.version_converter
from onnx import TensorProto, helper

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.base.options import option
from edgekit.base.shapes import Shape
from edgekit.base.tensors import Range, Varying
from edgekit.models.onnx.binding import declared, true_inputs
from edgekit.models.onnx.graph import needed, opsets_of, reads
from edgekit.models.onnx.lengths.extents import Extent, Length, Size, of_length
from edgekit.models.onnx.lengths.extents import smallest as smallest_of
from edgekit.models.onnx.lengths.values import Value, rooms
from edgekit.models.onnx.lengths.walk import Walk, stored
from edgekit.models.onnx.lengths.writer import Writer

OLDEST_OPSET = 13


@dataclass(frozen=True)
class Fixed:
    """A graph with fixed sizes, and the dimensions of its inputs and outputs that vary.

    Each length that a `Varying` names is one more input or output of the graph, behind the model's.
    """

    proto: onnx.ModelProto
    inputs: Mapping[str, tuple[Varying, ...]]
    outputs: Mapping[str, tuple[Varying, ...]]


def fix(proto: onnx.ModelProto, ranges: Mapping[str, Shape]) -> Fixed:
    """Return the model with its inputs at their largest sizes, or raise UnsupportedModelError.

    Inputs that `ranges` leaves out have fixed sizes in the file.
    """
    proto = _inlined(proto)
    graph = proto.graph
    names = [*(item.name for item in graph.input), *(item.name for item in graph.output)]
    names += [tensor.name for tensor in graph.initializer]
    names += [name for node in graph.node for name in (*node.output, node.name)]
    writer = Writer(opsets_of(proto), names)
    scope = {tensor.name: stored(tensor) for tensor in graph.initializer}
    writer.values.update(scope)
    lengths = _lengths(graph, ranges, writer)
    inputs, varying = [], {}
    for item, spec in zip(true_inputs(graph), declared(true_inputs(graph)), strict=True):
        sizes = lengths.sizes[spec.name]
        value = Value(spec.name, item.type.tensor_type.elem_type, sizes, rooms(sizes))
        scope[spec.name] = writer.values[spec.name] = value
        inputs.append(helper.make_tensor_value_info(spec.name, value.element, value.buffer))
        varying[spec.name] = _varying(value, lambda size: lengths.names[size])
    for length, name in lengths.tensors.items():
        scalar = Value(name, int(TensorProto.INT64), (), ())
        writer.values[name] = scalar
        writer.place(length, scalar)
        inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, ()))
    found = Walk(writer).run(graph.node, [item.name for item in graph.output], scope)
    outputs, results = _outputs(graph, found, lengths, writer)
    return Fixed(_model(proto, writer, inputs, results), varying, outputs)


@dataclass(frozen=True)
class _Lengths:
    """The lengths of the inputs."""

    sizes: Mapping[str, tuple[Size, ...]]
    """The shape of each input."""
    tensors: Mapping[Length, str]
    """The name of the scalar that holds a length."""
    names: dict[Size, str]
    """The name of the scalar that holds a size."""


def _lengths(graph: onnx.GraphProto, ranges: Mapping[str, Shape], writer: Writer) -> _Lengths:
    found: dict[str, Length] = {}
    sizes: dict[str, tuple[Size, ...]] = {}
    for spec in declared(true_inputs(graph)):
        given = ranges.get(spec.name, spec.shape)
        if len(given) != len(spec.shape) or not all(isinstance(x, int | Range) for x in given):
            raise ModelError(
                f"the shape of input {spec.name!r} is open",
                hint=f"give it with {option('shape', f'{spec.name}=...')}",
            )
        shape: list[Size] = []
        for i, (extent, said) in enumerate(zip(given, spec.shape, strict=True)):
            if not isinstance(extent, Range):
                shape.append(int(extent))
                continue
            own = said if isinstance(said, str) and said != "?" else f"{spec.name}_{i}"
            name = extent.name or own
            length = found.setdefault(name, Length(name, extent.smallest, extent.largest))
            if (length.smallest, length.largest) != (extent.smallest, extent.largest):
                raise ModelError(
                    f"dimension {i} of input {spec.name!r} is {name!r}, which is "
                    f"{length.smallest} to {length.largest} in another input",
                    hint="give inputs that share a dimension the same range",
                )
            shape.append(of_length(length))
        sizes[spec.name] = tuple(shape)
    tensors = {length: writer.fresh(f"length_{name}") for name, length in found.items()}
    return _Lengths(sizes, tensors, {of_length(one): name for one, name in tensors.items()})


def _outputs(
    graph: onnx.GraphProto, values: list[Value], lengths: _Lengths, writer: Writer
) -> tuple[dict[str, tuple[Varying, ...]], list[onnx.ValueInfoProto]]:
    """Give the outputs their names, and add the lengths that are no input's."""
    writer.layer = ""
    varying, results, extra = {}, [], []

    def length_name(size: Size) -> str:
        if size not in lengths.names:
            name = lengths.names[size] = writer.fresh(f"length_{len(lengths.names)}")
            writer.nodes.append(
                helper.make_node("Identity", [writer.named(writer.length(size))], [name], name)
            )
            extra.append(helper.make_tensor_value_info(name, TensorProto.INT64, ()))
        return lengths.names[size]

    names = [writer.named(value) for value in values]
    for i, (item, value) in enumerate(zip(graph.output, values, strict=True)):
        name = names[i]
        if name != item.name:
            # A rule may have given the name to what it then worked on.
            fresh = writer.fresh(item.name)
            writer.rename(item.name, fresh)
            names = [fresh if one == item.name else one for one in names]
            writer.nodes.append(helper.make_node("Identity", [name], [item.name], item.name))
        element = value.element or item.type.tensor_type.elem_type
        buffer = None if value.shape is None else value.buffer
        results.append(helper.make_tensor_value_info(item.name, element, buffer))
        varying[item.name] = _varying(value, length_name)
    return varying, [*results, *extra]


def _varying(value: Value, name_of: Callable[[Size], str]) -> tuple[Varying, ...]:
    return tuple(
        Varying(i, smallest_of(size), name_of(size))
        for i, size in enumerate(value.shape or ())
        if isinstance(size, Extent)
    )


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without functions of its own, in an operator set that the rules know."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if copy.functions:
        copy = onnx.inliner.inline_local_functions(copy)
    if opsets_of(copy)[""] < OLDEST_OPSET:
        try:
            copy = onnx.version_converter.convert_version(copy, OLDEST_OPSET)
        except (onnx.version_converter.ConvertError, RuntimeError) as error:
            raise UnsupportedModelError(
                f"the model's operator set {opsets_of(proto)['']} is too old for sizes that vary",
                hint=f"export it with operator set {OLDEST_OPSET} or newer, or give fixed sizes "
                f"with {option('shape')}",
                details=(str(error).splitlines()[0],),
            ) from error
    return copy


def _model(
    proto: onnx.ModelProto,
    writer: Writer,
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Return the written graph in place of the model's, without what nothing reads."""
    nodes = needed(writer.nodes, [item.name for item in outputs])
    read = {item.name for item in outputs}.union(*map(reads, nodes))
    kept = [one for one in (*proto.graph.initializer, *writer.initializers) if one.name in read]
    sparse = [one for one in proto.graph.sparse_initializer if one.values.name in read]
    graph = helper.make_graph(
        nodes, proto.graph.name, inputs, outputs, kept, sparse_initializer=sparse
    )
    graph.quantization_annotation.extend(proto.graph.quantization_annotation)
    proto.graph.CopyFrom(graph)
    known = {item.domain for item in proto.opset_import}
    for domain in dict.fromkeys(node.domain for node in nodes):
        if domain not in known and domain:
            proto.opset_import.append(helper.make_opsetid(domain, 1))
    return proto
