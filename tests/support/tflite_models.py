"""Small TFLite models built in code, and LiteRT's reference kernels as the judge of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edgekit.models.model import ModelSource, import_model, open_model
from edgekit.models.oracle import oracle_for

TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "bool": schema.TensorType.BOOL,
    "complex64": schema.TensorType.COMPLEX64,
    "resource": schema.TensorType.RESOURCE,
}
VERSIONS = {"BROADCAST_TO": 2}
"""Where LiteRT no longer has the first version of an operator."""


@dataclass(frozen=True)
class T:
    """A tensor: an input or a result where `data` is None, else a constant."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    data: Any = None
    scale: float | Sequence[float] | None = None
    zero: int = 0
    axis: int = 0
    signature: tuple[int, ...] | None = None
    variable: bool = False
    """Whether the tensor keeps its value from call to call."""


@dataclass(frozen=True)
class Op:
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options table's name under "table", its fields beside it; or the bytes of "custom"."""
    between: tuple[str, ...] = ()
    """Tensors that only say the scales of values inside the operator."""


@dataclass(frozen=True)
class Graph:
    """A graph that an operator calls by its number; the main graph is number 0."""

    tensors: Sequence[T]
    operators: Sequence[Op]
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True)
class Described:
    """A part of a model, the values of its inputs and the names of its results."""

    tensors: list[T]
    operators: list[Op]
    feeds: dict[str, np.ndarray]
    results: list[str]
    states: dict[str, np.ndarray] = field(default_factory=dict)
    """The values of variable tensors before the call."""


def constant(name: str, data: Any, **more: Any) -> T:
    array = np.asarray(data)
    if array.dtype == np.float64:
        array = array.astype("float32")
    return T(name, array.shape, array.dtype.name, array, **more)


def tflite_bytes(
    tensors: Sequence[T],
    operators: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    called: Sequence[Graph] = (),
) -> bytes:
    """The file. Results declared without a shape get the one that LiteRT computes, unless the file
    has graphs that are called."""
    content = _pack(Graph(tensors, operators, inputs, outputs), *called)
    results = {name for operator in operators for name in operator.outputs}
    if called or not any(tensor.name in results and not tensor.shape for tensor in tensors):
        return content
    shapes = _shapes_by_litert(content)
    shaped = [
        replace(tensor, shape=shapes[place]) if tensor.name in results else tensor
        for place, tensor in enumerate(tensors)
    ]
    return _pack(Graph(shaped, operators, inputs, outputs), *called)


def _shapes_by_litert(content: bytes) -> dict[int, tuple[int, ...]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    return {
        detail["index"]: tuple(int(extent) for extent in detail["shape"])
        for detail in interpreter.get_tensor_details()
    }


def _pack(*graphs: Graph) -> bytes:
    model = schema.ModelT()
    model.version = 3
    model.buffers = [schema.BufferT()]
    model.operatorCodes, model.subgraphs = [], []
    for described in graphs:
        index = {tensor.name: place for place, tensor in enumerate(described.tensors)} | {"": -1}
        graph = schema.SubGraphT()
        graph.tensors = [_tensor(tensor, model) for tensor in described.tensors]
        graph.operators = []
        for operator in described.operators:
            graph.operators.append(_operator(operator, len(model.operatorCodes), index))
            model.operatorCodes.append(_code(operator.name))
        graph.inputs = [index[name] for name in described.inputs]
        graph.outputs = [index[name] for name in described.outputs]
        model.subgraphs.append(graph)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(tensor: T, model: Any) -> Any:
    packed = schema.TensorT()
    packed.name = tensor.name.encode()
    packed.shape = list(tensor.shape)
    packed.shapeSignature = None if tensor.signature is None else list(tensor.signature)
    packed.type = TYPES[tensor.dtype]
    packed.buffer, packed.isVariable = 0, tensor.variable
    if tensor.data is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(tensor.data).tobytes(), np.uint8)
        packed.buffer = len(model.buffers)
        model.buffers.append(buffer)
    if tensor.scale is not None:
        scales = [float(scale) for scale in np.atleast_1d(np.array(tensor.scale))]
        packed.quantization = schema.QuantizationParametersT()
        packed.quantization.scale = scales
        packed.quantization.zeroPoint = [tensor.zero] * len(scales)
        packed.quantization.quantizedDimension = tensor.axis
    return packed


def _code(name: str) -> Any:
    code = schema.OperatorCodeT()
    if name.startswith("CUSTOM:"):
        code.builtinCode = schema.BuiltinOperator.CUSTOM
        code.customCode = name.removeprefix("CUSTOM:").encode()
    else:
        code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    code.version = VERSIONS.get(name, 1)
    return code


def _operator(operator: Op, place: int, index: Mapping[str, int]) -> Any:
    packed = schema.OperatorT()
    packed.opcodeIndex = place
    packed.inputs = [index[name] for name in operator.inputs]
    packed.outputs = [index[name] for name in operator.outputs]
    packed.intermediates = [index[name] for name in operator.between]
    if "custom" in operator.options:
        packed.customOptions = np.frombuffer(operator.options["custom"], np.uint8)
    table = operator.options.get("table")
    if table is not None:
        packed.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        packed.builtinOptions = getattr(schema, f"{table}T")()
        for name, value in operator.options.items():
            if name != "table":
                if not hasattr(packed.builtinOptions, name):
                    raise AttributeError(f"{table} has no field {name}")
                setattr(packed.builtinOptions, name, value)
    return packed


def write_model(folder: Path, content: bytes, name: str = "model.tflite") -> ModelSource:
    path = folder / name
    path.write_bytes(content)
    return open_model(path)


def run_as_deployed(source: ModelSource, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what a deployment on this machine computes."""
    from edgekit.backends.offloading import compile_model
    from edgekit.profiles.board import load_board
    from support.deployed import run_deployed

    model = import_model(source)
    compiled = compile_model(model, load_board("local").target, linked=True)
    values = run_deployed(compiled, [feeds[spec.name] for spec in model.inputs])
    return {spec.name: value for spec, value in zip(model.outputs, values, strict=True)}


def run_both(
    source: ModelSource, feeds: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What a deployment on this machine computes, and what the oracle does."""
    return run_as_deployed(source, feeds), oracle_for(source).run(feeds)
