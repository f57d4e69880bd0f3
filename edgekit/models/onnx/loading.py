"""Load a file as a `Model`, step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx
from tvm import relax

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.events import Events
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import counted
from edgekit.compiler.passes.guard_indices import guard_indices
from edgekit.models.binding import Bound
from edgekit.models.model import Model, ModelSource
from edgekit.models.naming import NamingBuilder
from edgekit.models.onnx.binding import bind, check_element_type
from edgekit.models.onnx.files import read_program, read_structure
from edgekit.models.onnx.graph import domain_of, opsets_of
from edgekit.models.onnx.importer import Importer
from edgekit.models.onnx.quantised_ends import inputs_with_steps, outputs_with_steps
from edgekit.models.onnx.reshaping import check_consistent
from edgekit.models.onnx.scanning import unsupported_operators
from edgekit.models.onnx.values import Value, as_expr, dtype_of, shape_of


def load_model(source: ModelSource, events: Events) -> Model:
    if source.adaptation.reshape:
        check_consistent(read_structure(source.path), source)
    proto = read_program(source)
    bound = bind(proto.graph, source)
    _refuse_unsupported(proto, bound)
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in bound.constants]
    if len(kept) != len(proto.graph.initializer):
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
    with events.stage("import the ONNX graph", total=len(proto.graph.node)) as stage:
        importer = Importer(
            block=NamingBuilder(),
            functions=functions_of(proto),
            on_node=lambda node: stage.advance(detail=node.op_type),
        )
        module, outputs = _import_graph(importer, proto, bound)
        stage.result = counted(len(proto.graph.node), "node")
    if importer.folded:
        importer.repaired(
            f"{counted(importer.folded, 'node')} with known inputs were computed when importing"
        )
    return Model(
        source,
        module,
        inputs_with_steps(proto.graph, bound.inputs),
        outputs_with_steps(proto.graph, outputs),
        tuple(importer.repairs),
    )


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
) -> tuple[object, tuple[TensorSpec, ...]]:
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
    with block.function("main", params=variables):
        with _closed_on_failure(block), block.dataflow():
            values = importer.run_graph(proto.graph, (), scope, opsets_of(proto))
            outputs = tuple(map(_output_spec, output_names, values))
            results = [as_expr(value) for value in values]
            result = block.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
        block.emit_func_output(result)
    module = relax.transform.DeadCodeElimination(["main"])(block.finalize())
    return guard_indices(module, [spec.name for spec in bound.inputs]), outputs


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
