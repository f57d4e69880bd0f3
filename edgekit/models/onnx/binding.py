"""Read a graph's inputs and outputs, and bind its inputs."""

from __future__ import annotations

import onnx

from edgekit.base.errors import UnsupportedModelError
from edgekit.base.tensors import OpenTensorSpec
from edgekit.models.binding import UNKNOWN_RANK, Bound, bind_inputs
from edgekit.models.model import ModelSource

DEVICE_DTYPES = frozenset(
    {"bool", "bfloat16", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


def declared(items: list[onnx.ValueInfoProto]) -> tuple[OpenTensorSpec, ...]:
    """Return the declared inputs or outputs of a model file."""
    return tuple(OpenTensorSpec(item.name, _dtype(item), _shape(item)) for item in items)


def true_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs without a default value in the file (older models list all)."""
    stored = {tensor.name for tensor in graph.initializer}
    stored |= {tensor.values.name for tensor in graph.sparse_initializer}
    return [item for item in graph.input if item.name not in stored]


def bind(graph: onnx.GraphProto, source: ModelSource) -> Bound:
    """Give every input its shape or its value; `ModelError` if one is missing or wrong."""
    required = {item.name for item in true_inputs(graph)}
    inputs = [item for item in graph.input if item.name in required | source.constants.keys()]
    for item in inputs:
        if item.name not in source.constants:
            _check_type(item)
    return bind_inputs(declared(inputs), source, [item.name for item in graph.input])


def _check_type(item: onnx.ValueInfoProto) -> None:
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        what = (kind or "unknown type").removesuffix("_type").replace("_", " ")
        raise UnsupportedModelError(
            f"input {item.name!r} is of type {what}; only tensors can be handed to a device",
            hint="export the model with tensor inputs",
        )
    check_element_type("input", item.name, _dtype(item))


def check_element_type(what: str, name: str, dtype: str) -> None:
    if dtype not in DEVICE_DTYPES:
        raise UnsupportedModelError(
            f"{what} {name!r} holds {dtype}, which devices don't take",
            hint="export the model with float, integer or bool inputs and outputs",
        )


def _dtype(item: onnx.ValueInfoProto) -> str:
    element = item.type.tensor_type.elem_type
    if not element:
        return "unknown"
    if element == onnx.TensorProto.STRING:
        return "string"
    return str(onnx.helper.tensor_dtype_to_np_dtype(element))


def _shape(item: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    tensor = item.type.tensor_type
    if not tensor.HasField("shape"):
        return (UNKNOWN_RANK,)
    return tuple(
        int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else dim.dim_param or "?"
        for dim in tensor.shape.dim
    )
