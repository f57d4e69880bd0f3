"""Build a Relax module from a checked TFLite graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from edgekit.base.errors import EdgekitError
from edgekit.compiler.passes.guard_indices import guard_indices
from edgekit.compiler.passes.litert_arithmetic import ARITHMETIC, LITERT
from edgekit.models.naming import NamingBuilder
from edgekit.models.onnx.values import as_expr
from edgekit.models.tflite.converter import Converter, static_shape, variable_name
from edgekit.models.tflite.file import TfliteFile
from edgekit.models.tflite.states import states_of, variables_of


@dataclass(frozen=True)
class BuiltModule:
    module: tvm.IRModule
    output_shapes: tuple[tuple[int, ...], ...]
    """The shapes of the file's outputs, without those of its state."""
    repairs: tuple[str, ...]


def build_module(file: TfliteFile, shapes: Mapping[int, tuple[int, ...]]) -> BuiltModule:
    """Build a module with one function, `main`, and the given shape for each input."""
    graph = file.main
    resized = any(graph.tensors[index].shape != shape for index, shape in shapes.items())
    builder = NamingBuilder()
    converter = Converter(file, builder, resized)
    parameters = []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        kind = relax.TensorType(shapes[index], tensor.dtype)
        parameters.append(relax.Var(variable_name(tensor.name, index), kind))
        converter.set_value(index, parameters[-1])
    states = states_of(file)
    for variable in variables_of(file).values():
        converter.variables[variable.key] = variable.initial
    for place, state in enumerate(states, len(parameters)):
        kind = relax.TensorType(state.input.shape, state.input.dtype)
        parameters.append(relax.Var(variable_name(state.input.name, place), kind))
        converter.variables[state.variable.key] = parameters[-1]

    failure: EdgekitError | None = None
    outputs: list[Any] = []
    following: list[Any] = []
    with builder.function("main", parameters):
        with builder.dataflow():
            try:
                converter.convert_graph()
                outputs = converter.outputs()
                following = [as_expr(converter.variables[state.variable.key]) for state in states]
            except EdgekitError as error:
                failure = error  # TVM writes to stderr about a builder with an open block.
            results = [*outputs, *following]
            result = results[0] if len(results) == 1 else relax.Tuple(results)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    if failure is not None:
        raise failure
    module = relax.transform.DeadCodeElimination()(
        relax.transform.CanonicalizeBindings()(builder.get())
    )
    module = guard_indices(module, [graph.tensors[index].name for index in graph.inputs])
    return BuiltModule(
        module.with_attr(ARITHMETIC, LITERT),
        tuple(static_shape(output) for output in outputs),
        tuple(converter.repairs),
    )
