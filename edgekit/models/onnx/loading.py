"""Load a file as a `Model`, step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import onnx
import tvm
from onnx import numpy_helper
from tvm import relax

from edgekit.base.errors import EdgekitError, UnsupportedModelError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.base.tensors import TensorSpec, Varying
from edgekit.base.wording import counted
from edgekit.compiler.passes.guard_indices import guard_indices
from edgekit.models.binding import Bound, closed
from edgekit.models.leftovers import Leftover
from edgekit.models.model import Model, ModelSource
from edgekit.models.naming import NamingBuilder
from edgekit.models.onnx.binding import bind, check_element_type, declared
from edgekit.models.onnx.files import read_program, read_structure
from edgekit.models.onnx.graph import domain_of, opsets_of
from edgekit.models.onnx.importer import Importer
from edgekit.models.onnx.leftovers import Inside, LeftoverImport
from edgekit.models.onnx.lengths import fix
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
    varying: Mapping[str, tuple[Varying, ...]] = {}
    leaving = source.leftovers.wish == "taken"
    try:
        if bound.ranges or decides_sizes(proto, [spec.name for spec in bound.inputs]):
            proto, bound, varying = _with_fixed_sizes(proto, bound)
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
    return Model(
        source,
        module,
        _varying(inputs_with_steps(proto.graph, bound.inputs), varying),
        _varying(outputs_with_steps(proto.graph, outputs), varying),
        tuple(importer.repairs),
        tuple(parts.values()),
    )


def _varying(
    specs: tuple[TensorSpec, ...], found: Mapping[str, tuple[Varying, ...]]
) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, varying=found.get(spec.name, ())) for spec in specs)


def _with_fixed_sizes(
    proto: onnx.ModelProto, bound: Bound
) -> tuple[onnx.ModelProto, Bound, Mapping[str, tuple[Varying, ...]]]:
    """Return the graph with each range at its largest size, and its tensors' varying dimensions."""
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
    inputs = tuple(closed(spec) for spec in declared(list(fixed.proto.graph.input)))
    return fixed.proto, Bound(inputs, {}), {**fixed.inputs, **fixed.outputs}


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
    importer: Importer, proto: onnx.ModelProto, bound: Bound
) -> tuple[tvm.IRModule, tuple[TensorSpec, ...]]:
    outputs = _write_function(importer, proto, bound, "main")
    module = relax.transform.DeadCodeElimination(["main"])(importer.block.finalize())
    return guard_indices(module, [spec.name for spec in bound.inputs]), outputs


def _write_function(
    importer: Importer, proto: onnx.ModelProto, bound: Bound, name: str
) -> tuple[TensorSpec, ...]:
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
            values = importer.run_graph(proto.graph, (), scope, opsets_of(proto))
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
