"""TFLite files: list their content, and import them into Relax.

`scan` needs no TVM. `load` keeps quantised models in the form relax.dequantize, float operator,
relax.quantize, so that a later phase can compute them in integers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from edgekit.base.errors import ModelError, UnsupportedModelError
from edgekit.base.events import Events
from edgekit.base.options import option
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import (
    Model,
    ModelScan,
    ModelSource,
    OperatorCount,
    Signature,
    UnsupportedOperator,
)
from edgekit.models.tflite.file import (
    BYTES_PER_ELEMENT,
    TfliteFile,
    TfliteGraph,
    TfliteTensor,
    read_tflite,
)
from edgekit.models.tflite.operators import TYPES, unsupported_operators
from edgekit.models.tflite.states import called_graphs, states_of


def check_inputs(source: ModelSource) -> None:
    """Do nothing: open shapes are known only after reading the file, in `load`."""


def content_files(path: Path) -> tuple[Path, ...]:
    """Return the files of the model: a TFLite model is one file."""
    return (path,)


def scan(source: ModelSource) -> ModelScan:
    """List the content of the file."""
    file = read_tflite(source.path)
    graph = file.main
    graphs, states = called_graphs(file), states_of(file)
    weights = [tensor for one in graphs for tensor in one.tensors if tensor.is_constant]
    counts = Counter(operator.name for one in graphs for operator in one.operators)
    shapes = _input_shapes(graph, source) if not _open_inputs(graph, source) else {}
    return ModelScan(
        inputs=(
            *(_open_spec(graph.tensors[i], shapes.get(i)) for i in graph.inputs),
            *(_as_open(state.input) for state in states),
        ),
        outputs=_open_outputs(file),
        operators=tuple(OperatorCount(name, count) for name, count in counts.most_common()),
        parameters=sum(_stored_elements(tensor) for tensor in weights),
        parameter_bytes=sum(tensor.constant_bytes for tensor in weights),
        unsupported=unsupported_operators(file),
    )


def signature(source: ModelSource) -> Signature:
    """Return the inputs and outputs of the file."""
    file = read_tflite(source.path)
    shapes = _input_shapes(file.main, source)
    inputs = (
        *(_spec(file.main.tensors[i], shapes[i]) for i in file.main.inputs),
        *(state.input for state in states_of(file)),
    )
    return Signature(inputs, _open_outputs(file))


def load(source: ModelSource, events: Events) -> Model:
    """Import the file as a Relax module, with repairs."""
    file = read_tflite(source.path)
    graph = file.main
    _check_supported(source, file)
    _check_constants(source)
    shapes = _input_shapes(graph, source)
    for index in graph.inputs:
        if graph.tensors[index].open_dimensions and graph.tensors[index].name not in source.shapes:
            name = graph.tensors[index].name
            events.note(f"the open batch of input '{name}' is taken as the file has it, 1")
    load_tvm()
    from edgekit.models.tflite.build import build_module

    built = build_module(file, shapes)
    return Model(
        source=source,
        module=built.module,
        inputs=(
            *(_spec(graph.tensors[i], shapes[i]) for i in graph.inputs),
            *(state.input for state in states_of(file)),
        ),
        outputs=(
            *(
                replace(_spec(graph.tensors[index], shape), name=name)
                for index, shape, name in zip(
                    graph.outputs, built.output_shapes, output_names(file), strict=True
                )
            ),
            *(state.output for state in states_of(file)),
        ),
        repairs=built.repairs,
    )


def input_shapes(file: TfliteFile, source: ModelSource) -> tuple[tuple[int, ...], ...]:
    """Return the shape of each input, in order, with every dimension known."""
    shapes = _input_shapes(file.main, source)
    return tuple(shapes[index] for index in file.main.inputs)


def input_names(file: TfliteFile) -> tuple[str, ...]:
    return tuple(file.main.tensors[index].name for index in file.main.inputs)


def output_names(file: TfliteFile) -> tuple[str, ...]:
    """Return the outputs' names; a tensor that is returned twice gets a second one."""
    names: list[str] = []
    for place, index in enumerate(file.main.outputs):
        name = file.main.tensors[index].name
        names.append(f"{name}@{place}" if name in names else name)
    return tuple(names)


def _check_supported(source: ModelSource, file: TfliteFile) -> None:
    graph, unsupported = file.main, unsupported_operators(file)
    if unsupported:
        raise UnsupportedModelError(
            _unsupported_sentence(source, unsupported),
            hint=f"edgekit inspect {source.path.name} lists them all",
            details=tuple(
                f"{entry.name} x{entry.count}: {entry.reason} (first: {entry.node})"
                for entry in unsupported
            ),
        )
    for index in (*graph.inputs, *graph.outputs):
        tensor = graph.tensors[index]
        if tensor.dtype not in TYPES:
            raise UnsupportedModelError(
                f"'{tensor.name}' is a {tensor.dtype} tensor, which the compiler does not have",
                hint="export the model with number tensors as inputs and outputs",
            )


def _unsupported_sentence(source: ModelSource, unsupported: tuple[UnsupportedOperator, ...]) -> str:
    first = unsupported[0]
    others = sum(entry.count for entry in unsupported) - 1
    more = f", and {others} more cannot either" if others else ""
    return (
        f"{source.path.name} uses {first.name} ({first.node}), which cannot be imported: "
        f"{first.reason}{more}"
    )


def _check_constants(source: ModelSource) -> None:
    if source.constants:
        raise ModelError(
            "inputs of a TFLite model cannot be bound to constants",
            hint="bind them when the model is exported",
        )


def _open_inputs(graph: TfliteGraph, source: ModelSource) -> list[TfliteTensor]:
    """Return the inputs with open dimensions, except a batch, for which the file stores 1."""
    tensors = [graph.tensors[index] for index in graph.inputs]
    return [
        tensor
        for tensor in tensors
        if tensor.name not in source.shapes and any(_needs_closing(tensor))
    ]


def _needs_closing(tensor: TfliteTensor) -> list[bool]:
    return [
        extent < 0 and not (axis == 0 and tensor.shape[0] == 1)
        for axis, extent in enumerate(tensor.signature)
    ]


def _input_shapes(graph: TfliteGraph, source: ModelSource) -> dict[int, tuple[int, ...]]:
    names = {graph.tensors[index].name for index in graph.inputs}
    for name in source.shapes:
        if name not in names:
            raise ModelError(
                f"{source.path.name} has no input '{name}'",
                hint=f"its inputs are {', '.join(sorted(names))}",
            )
    still_open = _open_inputs(graph, source)
    if still_open:
        listed = ", ".join(f"{tensor.name} {_declared(tensor)}" for tensor in still_open)
        raise ModelError(
            f"{source.path.name} leaves dimensions open: {listed}",
            hint=" ".join(option("shape", f"{tensor.name}=...") for tensor in still_open),
        )
    return {index: _closed(graph.tensors[index], source) for index in graph.inputs}


def _closed(tensor: TfliteTensor, source: ModelSource) -> tuple[int, ...]:
    wanted = source.shapes.get(tensor.name)
    if wanted is None:
        return tensor.shape
    fits = len(wanted) == len(tensor.signature) and all(
        extent > 0 and (source.adaptation.reshape or declared in (-1, extent))
        for extent, declared in zip(wanted, tensor.signature, strict=True)
    )
    if not fits:
        own = option("shape", f"{tensor.name}={','.join(map(str, tensor.shape))}")
        raise ModelError(
            f"the input '{tensor.name}' is {_declared(tensor)} and cannot be made {list(wanted)}",
            hint=f"{own} fits; {option('reshape')} overrides a shape that the graph does not need",
        )
    return tuple(wanted)


def _declared(tensor: TfliteTensor) -> str:
    return "[" + ", ".join("?" if e < 0 else str(e) for e in tensor.signature) + "]"


def _open_spec(tensor: TfliteTensor, closed: tuple[int, ...] | None) -> OpenTensorSpec:
    shape: tuple[int | str, ...] = closed or tuple(
        "?" if needs else extent
        for needs, extent in zip(_needs_closing(tensor), tensor.shape, strict=True)
    )
    return OpenTensorSpec(tensor.name, tensor.dtype, shape, tensor.quantization)


def _spec(tensor: TfliteTensor, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.dtype, shape, tensor.quantization)


def _open_outputs(file: TfliteFile) -> tuple[OpenTensorSpec, ...]:
    tensors = [file.main.tensors[index] for index in file.main.outputs]
    return (
        *(
            replace(_open_spec(tensor, None), name=name)
            for tensor, name in zip(tensors, output_names(file), strict=True)
        ),
        *(_as_open(state.output) for state in states_of(file)),
    )


def _as_open(spec: TensorSpec) -> OpenTensorSpec:
    return OpenTensorSpec(spec.name, spec.dtype, spec.shape, spec.quantization)


def _stored_elements(tensor: TfliteTensor) -> int:
    return tensor.constant_bytes // BYTES_PER_ELEMENT.get(tensor.dtype, 1)
