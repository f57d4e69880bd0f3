"""Load a file as a `Model`, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import onnx
import tvm
from onnx import numpy_helper
from tvm import relax

from edgekit.base.errors import EdgekitError, UnsupportedModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.base.shapes import Shape
from edgekit.base.tensors import Range, TensorSpec, Varying
from edgekit.base.varying import buckets_of
from edgekit.base.wording import counted
from edgekit.compiler.passes.guard_indices import guard_indices
from edgekit.models.binding import Bound, closed
from edgekit.models.leftovers import Leftover
from edgekit.models.model import Model, ModelSource
from edgekit.models.naming import NamingBuilder
from edgekit.models.onnx.binding import bind, check_element_type, declared
from edgekit.models.onnx.files import read_program, read_structure
from edgekit.models.onnx.graph import domain_of, opsets_of
from edgekit.models.onnx.importer import Importer, to_array
from edgekit.models.onnx.leftovers import Inside, LeftoverImport
from edgekit.models.onnx.lengths import Fixed, fix
from edgekit.models.onnx.lengths.buckets import Bucket, Values, emit_by_size
from edgekit.models.onnx.maps import said_of_maps
from edgekit.models.onnx.quantised_ends import inputs_with_steps, outputs_with_steps
from edgekit.models.onnx.reshaping import check_consistent
from edgekit.models.onnx.scanning import decides_sizes, unsupported_operators
from edgekit.models.onnx.small_types import with_bytes
from edgekit.models.onnx.values import Value, as_expr, dtype_of, shape_of


def load_model(source: ModelSource, events: Events) -> Model:
    """Import the model. If it is refused, advise the backend that would take what is."""
    try:
        return _load(source, events)
    except UnsupportedModelError as error:
        if source.leftovers.wish != "advised":
            raise
        try:
            left = replace(source.leftovers, wish="taken")
            _load(replace(source, leftovers=left), SILENT)
        except EdgekitError:
            raise error from None
        advice = f"{option('offload')} {source.leftovers.backend} runs that part as it is"
        hint = f"{advice}; or {error.hint}" if error.hint else advice
        raise UnsupportedModelError(error.message, hint=hint, details=error.details) from error


def _load(source: ModelSource, events: Events) -> Model:
    if source.adaptation.reshape:
        check_consistent(read_structure(source.path), source)
    proto = with_bytes(read_program(source))
    bound = bind(proto.graph, source)
    sized: _Sized | None = None
    leaving = source.leftovers.wish == "taken"
    try:
        if bound.ranges or decides_sizes(proto, [spec.name for spec in bound.inputs]):
            sized = _with_fixed_sizes(proto, bound)
            proto, bound = sized.fixed.proto, sized.bound
    except UnsupportedModelError:
        if bound.ranges or not leaving:
            raise
    if source.leftovers.wish != "taken":
        _refuse_unsupported(proto, bound)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in bound.constants]
    if len(kept) != len(proto.graph.initializer):
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
    with events.stage("import the ONNX graph", total=len(proto.graph.node)) as stage:
        parts: dict[str, Leftover] = {}

        def imported(proto: onnx.ModelProto) -> tuple[Importer, object, tuple[TensorSpec, ...]]:
            block = NamingBuilder()
            importer = Importer(
                block=block,
                functions=functions_of(proto),
                on_node=lambda node: stage.advance(detail=node.op_type),
                leftovers=LeftoverImport(proto, block, bound, parts) if leaving else None,
            )
            return importer, *_import_graph(importer, proto, bound)

        try:
            importer, module, outputs = imported(proto)
        except _NodesLeft as left:
            proto, parts = left.leftovers.rewritten()
            importer, module, outputs = imported(proto)
        stage.result = counted(len(proto.graph.node), "node")
    if "ai.onnx.ml" in opsets_of(proto):
        for sentence in said_of_maps(read_structure(source.path)):
            importer.repaired(sentence)
    if importer.folded:
        importer.repaired(
            f"{counted(importer.folded, 'node')} with known inputs were computed when importing"
        )
    inputs = inputs_with_steps(proto.graph, bound.inputs)
    results = outputs_with_steps(proto.graph, outputs)
    return Model(
        source,
        module,
        inputs if sized is None else _varying(inputs, sized.fixed.inputs),
        results if sized is None else _varying(results, sized.fixed.outputs),
        tuple(importer.repairs),
        tuple(parts.values()),
        None if sized is None or parts else _by_size(sized),
    )


def _varying(
    specs: tuple[TensorSpec, ...], found: Mapping[str, tuple[Varying, ...]]
) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, varying=found.get(spec.name, ())) for spec in specs)


@dataclass(frozen=True)
class _Sized:
    """A graph whose sizes vary, and the one that is made of it."""

    open: onnx.ModelProto
    """The graph, with the inputs that are constants as weights."""
    shapes: Mapping[str, Shape]
    fixed: Fixed
    """The graph with each range at its largest size."""
    bound: Bound


def _with_fixed_sizes(proto: onnx.ModelProto, bound: Bound) -> _Sized:
    """Return the graph with each range at its largest size."""
    own = onnx.ModelProto()
    own.CopyFrom(proto)
    kept = [item for item in own.graph.input if item.name not in bound.constants]
    del own.graph.input[:]
    own.graph.input.extend(kept)
    known = [tensor for tensor in own.graph.initializer if tensor.name not in bound.constants]
    known += [numpy_helper.from_array(value, name) for name, value in bound.constants.items()]
    del own.graph.initializer[:]
    own.graph.initializer.extend(known)
    shapes = {spec.name: bound.ranges.get(spec.name, spec.shape) for spec in bound.inputs}
    fixed = fix(own, shapes)
    return _Sized(own, shapes, fixed, Bound(_closed_inputs(fixed), {}))


def _closed_inputs(fixed: Fixed) -> tuple[TensorSpec, ...]:
    return tuple(closed(spec) for spec in declared(list(fixed.proto.graph.input)))


def _by_size(sized: _Sized) -> Callable[[], tvm.IRModule] | None:
    """Return what makes the module with a graph for each of several sizes; None if one serves all.

    The graphs share the weights of the file.
    """
    sizes = buckets_of(_varying(sized.bound.inputs, sized.fixed.inputs))
    if not sizes:
        return None
    largest = {
        one.length: spec.shape[one.dimension]
        for spec in sized.bound.inputs
        for one in sized.fixed.inputs.get(spec.name, ())
    }

    def module() -> tvm.IRModule:
        importer = Importer(
            block=NamingBuilder(), functions=functions_of(sized.open), on_node=lambda node: None
        )
        weights = {tensor.name: to_array(tensor) for tensor in sized.open.graph.initializer}
        buckets: list[Bucket] = []
        for one in [largest, *sizes]:
            fixed = sized.fixed if one is largest else fix(sized.open, _shapes_at(sized, one))
            if _ends_of(fixed) != _ends_of(sized.fixed):
                break  # its lengths are others, and so are those that are smaller
            graph = _without(fixed.proto.graph, weights)
            run = partial(_emitted_with, importer, graph, opsets_of(fixed.proto), weights)
            buckets.append(Bucket(one, _closed_inputs(fixed), run))
        emitted = partial(emit_by_size, importer.block, buckets)
        return _import_graph(importer, sized.fixed.proto, sized.bound, emitted)[0]

    return module


def _emitted_with(
    importer: Importer,
    graph: onnx.GraphProto,
    opsets: Mapping[str, int],
    weights: Values,
    inputs: Values,
) -> list[Value]:
    return importer.run_graph(graph, (), {**weights, **inputs}, opsets)


def _shapes_at(sized: _Sized, sizes: Mapping[str, int]) -> Mapping[str, Shape]:
    """Return the shapes of the inputs with these sizes as the largest."""
    found: dict[str, Shape] = {}
    for name, shape in sized.shapes.items():
        limited = list(shape)
        for one in sized.fixed.inputs.get(name, ()):
            extent = shape[one.dimension]
            assert isinstance(extent, Range)
            limited[one.dimension] = replace(extent, largest=sizes[one.length])
        found[name] = tuple(limited)
    return found


def _ends_of(fixed: Fixed) -> object:
    """Return what graphs of one model have in common, whatever their largest sizes are."""
    graph = fixed.proto.graph
    return (
        [item.name for item in (*graph.input, *graph.output)],
        [
            [(one.dimension, one.length) for one in varying]
            for varying in (*fixed.inputs.values(), *fixed.outputs.values())
        ],
    )


def _without(graph: onnx.GraphProto, weights: Container[str]) -> onnx.GraphProto:
    """Return the graph without initializers of these names."""
    kept = [tensor for tensor in graph.initializer if tensor.name not in weights]
    small = onnx.helper.make_graph(graph.node, graph.name, graph.input, graph.output, kept)
    small.sparse_initializer.extend(graph.sparse_initializer)
    return small


class _NodesLeft(Exception):
    """An import ended that left nodes."""

    def __init__(self, leftovers: LeftoverImport) -> None:
        super().__init__(leftovers)
        self.leftovers = leftovers


def load_ends(
    proto: onnx.ModelProto, module: tvm.IRModule
) -> tuple[tvm.IRModule, tuple[TensorSpec, ...]]:
    """Return the module with a graph of edgekit's own as the function `ends`, and its outputs.

    What it gathers by are constants, and indices that sorting made: nothing has to be checked.
    """
    inputs = tuple(closed(spec) for spec in declared(list(proto.graph.input)))
    importer = Importer(block=NamingBuilder(module), functions={}, on_node=lambda node: None)
    outputs = _write_function(importer, proto, Bound(inputs, {}), "ends")
    return importer.block.finalize(), outputs


def functions_of(proto: onnx.ModelProto) -> Mapping[tuple[str, str], onnx.FunctionProto]:
    """Return the model's own functions, by domain and name."""
    return {(domain_of(function), function.name): function for function in proto.functions}


def _refuse_unsupported(proto: onnx.ModelProto, bound: Bound) -> None:
    """Refuse parts that can't be compiled before working on the rest."""
    found = unsupported_operators(proto, [spec.name for spec in bound.inputs])
    if not found:
        return
    first, others = found[0], len(found) - 1
    more = f"; {others} other operator{'s' if others > 1 else ''} can't be either"
    times = f", used {first.count} times" if first.count > 1 else ""
    raise UnsupportedModelError(
        f"{first.name} (node {first.node!r}{times}) can't be compiled: {first.reason}"
        + (more if others else ""),
        hint=first.hint,
        details=tuple(
            f"{item.name} (node {item.node!r}, {item.count}x): {item.reason}" for item in found[1:]
        ),
    )


def _import_graph(
    importer: Importer,
    proto: onnx.ModelProto,
    bound: Bound,
    emitted: Callable[[Values], list[Value]] | None = None,
) -> tuple[tvm.IRModule, tuple[TensorSpec, ...]]:
    outputs = _write_function(importer, proto, bound, "main", emitted)
    module = relax.transform.DeadCodeElimination(["main"])(importer.block.finalize())
    return guard_indices(module, [spec.name for spec in bound.inputs]), outputs


def _write_function(
    importer: Importer,
    proto: onnx.ModelProto,
    bound: Bound,
    name: str,
    emitted: Callable[[Values], list[Value]] | None = None,
) -> tuple[TensorSpec, ...]:
    """Write the graph as a function, or what `emitted` makes of its inputs; return the outputs."""
    block = importer.block
    names = variable_names([spec.name for spec in bound.inputs])
    variables = [
        relax.Var(name, relax.TensorType(spec.shape, spec.dtype))
        for name, spec in zip(names, bound.inputs, strict=True)
    ]
    scope: dict[str, Value] = dict(bound.constants)
    scope.update(
        {spec.name: variable for spec, variable in zip(bound.inputs, variables, strict=True)}
    )
    output_names = [item.name for item in proto.graph.output]
    with block.function(name, params=variables):
        with _closed_on_failure(block), block.dataflow():
            values = (
                importer.run_graph(proto.graph, (), scope, opsets_of(proto))
                if emitted is None
                else emitted(scope)
            )
            outputs = tuple(map(_output_spec, output_names, values))
            if importer.leftovers is not None and importer.leftovers.left:
                raise _NodesLeft(importer.leftovers)
            results = [as_expr(value) for value in values]
            result = block.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
        block.emit_func_output(result)
    return outputs


@contextmanager
def _closed_on_failure(block: relax.BlockBuilder) -> Iterator[None]:
    """Close the builder's block on failure: TVM warns on the terminal about an open one."""
    try:
        yield
    except BaseException:
        block._end_block()
        block.end_scope()
        raise


def _output_spec(name: str, value: Value) -> TensorSpec:
    if isinstance(value, Inside):
        raise UnsupportedModelError(
            f"output {name!r} {value.why}; a device returns tensors of numbers whose size is fixed",
            hint="export the model without that output, or with its numbers",
        )
    if value is None or isinstance(value, tuple):
        raise UnsupportedModelError(
            f"output {name!r} is a sequence or an optional; a device returns only tensors",
            hint="export the model with tensor outputs",
        )
    check_element_type("output", name, dtype_of(value))
    return TensorSpec(name, dtype_of(value), shape_of(value))


def variable_names(names: list[str]) -> list[str]:
    """Return the names as distinct identifiers."""
    taken: set[str] = set()
    result = []
    for name in names:
        base = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not base or base[0].isdigit():
            base = f"input_{base}"
        fresh, count = base, 1
        while fresh in taken:
            count += 1
            fresh = f"{base}_{count}"
        taken.add(fresh)
        result.append(fresh)
    return result
