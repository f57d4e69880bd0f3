"""Numbers of eight bits and less that no device computes with: each is a byte of the program.

Floats of 8 and 4 bits are their bits as uint8, integers of 4 and 2 bits their values as int8 or
uint8. The graph is written with casts of edgekit's own where such numbers begin and end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.base.arrays import Array

FLOATS: Mapping[int, str] = {
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    TensorProto.FLOAT8E8M0: "float8_e8m0fnu",
    TensorProto.FLOAT4E2M1: "float4_e2m1fn",
}
"""The names of ml_dtypes."""
INTEGERS: Mapping[int, tuple[int, bool]] = {
    TensorProto.INT4: (4, True),
    TensorProto.UINT4: (4, False),
    TensorProto.INT2: (2, True),
    TensorProto.UINT2: (2, False),
}
"""Bits, and whether there are negative ones."""
DOMAIN = "edgekit"
_MOVES = frozenset(
    (
        *("Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze"),
        *("Transpose", "Unsqueeze"),
    )
)


def is_small(element: int) -> bool:
    return element in FLOATS or element in INTEGERS


def byte_type(element: int) -> int:
    """Return the type of the bytes that hold such numbers."""
    signed = element in INTEGERS and INTEGERS[element][1]
    return int(TensorProto.INT8 if signed else TensorProto.UINT8)


def as_bytes(array: Array) -> Array:
    """Return numbers of a small type as bytes, others as they are."""
    name = array.dtype.name
    if name in FLOATS.values():
        return array.view(np.uint8)
    if name in ("int4", "int2"):
        return array.astype(np.int8)
    return array.astype(np.uint8) if name in ("uint4", "uint2") else array


def from_bytes(array: Array, element: int) -> Array:
    """Return bytes as the small numbers that they hold."""
    if element in FLOATS:
        return array.view(getattr(ml_dtypes, FLOATS[element]))
    return array.astype(helper.tensor_dtype_to_np_dtype(element))


def values_of(name: str) -> Array:
    """Return the float32 of each byte of a type."""
    codes = np.arange(256, dtype=np.uint8)
    if name == "float4_e2m1fn":
        codes &= 15
    return np.asarray(codes.view(getattr(ml_dtypes, name)).astype(np.float32))


def has_small_ends(graph: onnx.GraphProto) -> bool:
    ends = (*graph.input, *graph.output)
    return any(is_small(item.type.tensor_type.elem_type) for item in ends)


def with_bytes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with bytes for small numbers; the same one where an operator computes with
    them as they are."""
    if not has_small_ends(proto.graph):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    writer = _Writer(copy.graph)
    if not all(writer.written(node) for node in copy.graph.node):
        return proto
    del copy.graph.node[:]
    copy.graph.node.extend(writer.nodes)
    copy.graph.initializer.extend(writer.constants)
    for item in (*copy.graph.input, *copy.graph.output):
        kind = item.type.tensor_type
        if is_small(kind.elem_type):
            kind.elem_type = byte_type(kind.elem_type)
    del copy.graph.value_info[:]
    if all(item.domain != DOMAIN for item in copy.opset_import):
        copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return copy


@dataclass
class _Writer:
    graph: onnx.GraphProto
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    small: dict[str, int] = field(default_factory=dict)
    """The type of each value that has become bytes."""
    known: dict[str, onnx.TensorProto] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in self.graph.input:
            kind = item.type.tensor_type
            self.ranks[item.name] = len(kind.shape.dim)
            if is_small(kind.elem_type):
                self.small[item.name] = kind.elem_type
        self.known = {tensor.name: tensor for tensor in self.graph.initializer}

    def written(self, node: onnx.NodeProto) -> bool:
        """Write a node; return whether that can be done."""
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        kind = node.op_type if not node.domain else ""
        first = node.input[0] if node.input else ""
        element = self.small.get(first, 0)
        if kind in ("Cast", "CastLike"):
            return self._cast(node, attributes)
        if kind == "DequantizeLinear" and element:
            return self._dequantized(node, element, attributes)
        if kind == "QuantizeLinear" and self._quantised_to(node, attributes):
            return self._quantised(node, self._quantised_to(node, attributes), attributes)
        if any(name in self.small for name in node.input):
            kinds = {self.small.get(name) for name in node.input if name in self.small}
            if kind not in _MOVES or len(kinds) != 1 or not element:
                return False
            self.small[node.output[0]] = element
        self.nodes.append(node)
        return True

    def _cast(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> bool:
        value, out = node.input[0], node.output[0]
        like = node.input[1] if node.op_type == "CastLike" else ""
        target = self.small.get(like, 0) if like else int(attributes["to"])
        value = self._number(value)
        if not is_small(target):
            inputs = [value, *([like] if like else [])]
            kept: dict[str, Any] = {} if like else {"to": target}
            self._add(node.op_type, inputs, out, **kept)
            return True
        self.small[out] = target
        self._small(value, out, target, attributes)
        return True

    def _small(self, value: str, out: str, target: int, attributes: Mapping[str, Any]) -> None:
        if target in INTEGERS:
            bits, signed = INTEGERS[target]
            self._add("ToBits", [value], out, DOMAIN, bits=bits, signed=int(signed))
            return
        mode = attributes.get("round_mode", b"up").decode()
        saturate = int(attributes.get("saturate", 1))
        made = {"kind": FLOATS[target], "saturate": saturate, "round_mode": mode}
        self._add("ToSmall", [value], out, DOMAIN, **made)

    def _number(self, name: str) -> str:
        """Return a value as numbers that operators compute with."""
        element = self.small.get(name, 0)
        if element not in FLOATS:
            return name
        out = f"{name}/number"
        self._add("FromSmall", [name], out, DOMAIN, kind=FLOATS[element])
        return out

    def _bytes(self, name: str) -> str:
        """Return a zero point as bytes."""
        tensor = self.known.get(name)
        if not name or tensor is None or not is_small(tensor.data_type):
            return name
        array = as_bytes(numpy_helper.to_array(tensor))
        self.constants.append(numpy_helper.from_array(array, f"{name}/bytes"))
        self.small[f"{name}/bytes"] = tensor.data_type
        return f"{name}/bytes"

    def _dequantized(
        self, node: onnx.NodeProto, element: int, attributes: Mapping[str, Any]
    ) -> bool:
        names = [str(name) for name in node.input]
        value, scale = names[:2]
        zero = [self._bytes(name) for name in names[2:] if name]
        if element in INTEGERS:
            kept = {key: attributes[key] for key in ("axis", "block_size") if key in attributes}
            self._add("DequantizeLinear", [value, scale, *zero], node.output[0], **kept)
            return True
        number, places = self._number(value), [*map(self._number, zero)]
        self._add("CastLike", [number, scale], f"{value}/as_scale")
        number = f"{value}/as_scale"
        scale = self._along(scale, value, attributes)
        if places:
            zero_point = self._along(places[0], value, attributes)
            self._add("CastLike", [zero_point, scale], f"{value}/zero")
            self._add("Sub", [number, f"{value}/zero"], f"{value}/moved")
            number = f"{value}/moved"
        self._add("Mul", [number, scale], node.output[0])
        return not attributes.get("block_size")

    def _quantised_to(self, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> int:
        """Return the small type of a quantised output; 0 for another."""
        zero = node.input[2] if len(node.input) > 2 else ""
        found = self.small.get(zero) or int(attributes.get("output_dtype", 0))
        if zero in self.known:
            found = self.known[zero].data_type
        return found if is_small(found) else 0

    def _quantised(self, node: onnx.NodeProto, element: int, attributes: Mapping[str, Any]) -> bool:
        names = [str(name) for name in node.input]
        value, scale = names[:2]
        out, zero = str(node.output[0]), [self._bytes(name) for name in names[2:] if name]
        self.small[out] = element
        if attributes.get("block_size"):
            return False
        if element in FLOATS:
            scale = self._along(scale, value, attributes)
            self._add("Div", [value, scale], f"{out}/scaled")
            self._small(f"{out}/scaled", out, element, attributes)
            return True
        bits, signed = INTEGERS[element]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        dtype = np.int8 if signed else np.uint8
        ends = [f"{out}/low", f"{out}/high"]
        for name, number in zip(ends, (low, high), strict=True):
            self.constants.append(numpy_helper.from_array(np.array(number, dtype), name))
        if not zero:
            zero = [f"{out}/zero"]
            self.constants.append(numpy_helper.from_array(np.array(0, dtype), zero[0]))
        kept = {"axis": attributes["axis"]} if "axis" in attributes else {}
        self._add("QuantizeLinear", [value, scale, *zero], f"{out}/wide", **kept)
        self._add("Clip", [f"{out}/wide", *ends], out)
        return True

    def _along(self, name: str, value: str, attributes: Mapping[str, Any]) -> str:
        """Return a scale so that it broadcasts along the axis of a value."""
        rank, axis = self.ranks.get(value, 0), int(attributes.get("axis", 1))
        if self.ranks.get(name.removesuffix("/number"), 0) != 1 or axis in (rank - 1, -1):
            return name
        shape = [1] * rank
        shape[axis] = -1
        self.constants.append(numpy_helper.from_array(np.array(shape), f"{name}/shape"))
        self._add("Reshape", [name, f"{name}/shape"], f"{name}/along")
        return f"{name}/along"

    def _add(
        self, operator: str, inputs: Sequence[str], out: str, domain: str = "", **attributes: Any
    ) -> None:
        self.nodes.append(
            helper.make_node(operator, list(inputs), [out], out, domain=domain, **attributes)
        )
