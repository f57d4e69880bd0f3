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
from edgekit.models.tflite.converter import Converter, static_shape, variable_name
from edgekit.models.tflite.file import TfliteFile


@dataclass(frozen=True)
class BuiltModule:
    module: tvm.IRModule
    output_shapes: tuple[tuple[int, ...], ...]
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
        converter.set_input(index, parameters[-1])

    failure: EdgekitError | None = None
    outputs: list[Any] = []
    with builder.function("main", parameters):
        with builder.dataflow():
            try:
                converter.convert_graph()
                outputs = converter.outputs()
            except EdgekitError as error:
                failure = error  # TVM writes to stderr about a builder with an open block.
            result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
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
