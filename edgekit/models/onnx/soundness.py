"""Check the rules on which every later step relies, after an ONNX file was parsed.

Protobuf accepts what the schema forbids: text that is not UTF-8, unknown element types, negative
extents, functions that call themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]

from edgekit.base.errors import ModelError
from edgekit.models.onnx.graph import all_nodes, domain_of

NEWEST_OPSET = 2**31 - 1
"""The highest valid opset: ONNX counts in 32 bits."""
LARGEST_TENSOR = 1 << 40
"""The most elements of a tensor; no host holds more."""

_TENSOR_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_DECLARED_TYPES = frozenset(onnx.TensorProto.DataType.values())


def check_sound(name: str, model: onnx.ModelProto, tensors: Iterable[onnx.TensorProto]) -> None:
    """Raise ModelError if the file `name` breaks one of these rules."""
    problem = next(_problems(model, tensors), None)
    if problem is not None:
        raise ModelError(
            f"{name} is damaged: {problem}",
            hint="copy, download or export it again and compare its size",
        )


def _problems(model: onnx.ModelProto, tensors: Iterable[onnx.TensorProto]) -> Iterator[str]:
    yield from _bad_text(model)
    for opset in model.opset_import:
        if not 0 < opset.version <= NEWEST_OPSET:
            yield f"it asks for version {opset.version} of the operators {opset.domain!r}"
    for item in (*model.graph.input, *model.graph.output):
        element = item.type.tensor_type.elem_type
        if element not in _DECLARED_TYPES:
            yield f"{item.name!r} has elements of the unknown type {element}"
    for tensor in tensors:
        if tensor.data_type not in _TENSOR_TYPES:
            yield f"the tensor {tensor.name!r} has elements of the unknown type {tensor.data_type}"
        yield from _bad_extents(f"the tensor {tensor.name!r}", tensor.dims)
    yield from _recursion(model)


def _bad_text(message: Any) -> Iterator[str]:
    """Find names that are not UTF-8, which protobuf returns as bytes."""
    if isinstance(message, onnx.TensorProto):  # avoids a copy of its values
        if isinstance(message.name, bytes):
            yield f"the name {message.name[:40]!r} of a tensor is not text"
        return
    for field, value in message.ListFields():
        single = isinstance(value, str | bytes | Message)
        if field.type == field.TYPE_STRING:
            for text in (value,) if single else value:
                if isinstance(text, bytes):
                    yield f"its {message.DESCRIPTOR.name}.{field.name} {text[:40]!r} is not text"
        elif field.type == field.TYPE_MESSAGE:
            for inner in (value,) if single else value:
                yield from _bad_text(inner)


def _bad_extents(what: str, extents: Iterable[int]) -> Iterator[str]:
    elements = 1
    for extent in extents:
        elements *= extent
        if extent < 0 or elements > LARGEST_TENSOR:
            yield f"{what} has an extent of {extent}"
            return


def _recursion(model: onnx.ModelProto) -> Iterator[str]:
    """Find functions that call themselves, directly or indirectly."""
    functions = {(domain_of(function), function.name): function for function in model.functions}
    calls = {
        key: {
            (domain_of(node), node.op_type)
            for node in all_nodes(function.node)
            if (domain_of(node), node.op_type) in functions
        }
        for key, function in functions.items()
    }
    for key in _in_a_circle(calls):
        yield f"its function {key[1]!r} calls itself"


def _in_a_circle(calls: Mapping[Any, set[Any]]) -> Iterator[Any]:
    """Return what remains after repeatedly removing functions that call no remaining one."""
    left = dict(calls)
    while left:
        done = [key for key, called in left.items() if not called & left.keys()]
        if not done:
            yield from left
            return
        for key in done:
            del left[key]
