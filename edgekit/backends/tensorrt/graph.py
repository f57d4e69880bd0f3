"""Write a region as an ONNX model, which TensorRT's parser reads on the device.

Opset 17 and IR version 8 suit the parser of TensorRT 8.5. Inputs are `input0`, `input1` and so on
in the region's order, outputs `output0`: the runner binds them by these names.

Half precision is written into the ONNX, for every version of TensorRT: float32 at the boundary,
float16 inside, and float32 where 65504 may not be enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.backends.base import Region, Setting, Step, Tensor
from edgekit.backends.tensorrt.expansions import EXPANSIONS
from edgekit.backends.tensorrt.precision import needs_range
from edgekit.base.arrays import Array
from edgekit.base.errors import BuildError
from edgekit.base.wording import counted

OPSET, IR_VERSION = 17, 8
_LARGEST = 2**31 - 2**20
"""The most bytes of weights: protobuf's limit for a message, less room for the rest."""
_NAME_LIMIT = 80
_TYPES = {
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "bool": TensorProto.UINT8,  # engines of no version take booleans as inputs
    "int64": TensorProto.INT32,  # engines before 10 lack int64; the runner widens
}
_CONSTANTS = ("float32", "int64", "int8", "bool")


def onnx_of(region: Region, *, half: bool = False) -> onnx.ModelProto:
    """Return the ONNX, checked by ONNX's checker; BuildError if the weights do not fit."""
    _require_fitting(region)
    graph = Graph(region, half=half)
    for step in region.steps:
        graph.step(step)
    graph.close()
    body = helper.make_graph(
        graph.nodes,
        region.symbol,
        [_declared(tensor, f"input{place}") for place, tensor in enumerate(region.inputs)],
        [_declared(tensor, f"output{place}") for place, tensor in enumerate(region.outputs)],
        [numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(body, opset_imports=[opset], ir_version=IR_VERSION)
    model.producer_name = "edgekit"
    onnx.checker.check_model(model)
    return model


class Graph:
    """Nodes and constants under construction, with short names."""

    def __init__(self, region: Region, *, half: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self._half = half
        self._narrow = False
        """Whether the current step is in half precision."""
        self._narrow_values: set[str] = set()
        self._cast: dict[str, str] = {}
        """The names of values cast to the other precision."""
        self._layer = "inputs"
        self._names = {t.name: self._opened(t, place) for place, t in enumerate(region.inputs)}
        self._ends = [
            (tensor, f"output{place}")
            for place, tensor in enumerate(region.outputs)
            if tensor.dtype in ("bool", "int64") or (half and tensor.dtype == "float32")
        ]
        converted = {tensor.name for tensor, _ in self._ends}
        for place, tensor in enumerate(region.outputs):
            if tensor.name not in converted:
                self._names[tensor.name] = f"output{place}"

    def step(self, step: Step) -> None:
        self._layer = _ascii("+".join(step.nodes or step.operators))
        reads = [self._names[tensor.name] for tensor in step.inputs]
        self._narrow = self._half and not needs_range(step, self._are_wide(step, reads))
        reads = [
            self._in_precision(name) if tensor.dtype == "float32" else name
            for tensor, name in zip(step.inputs, reads, strict=True)
        ]
        for place, array in _operands(step.layer.weights):
            # An omitted input before the last has an empty name.
            reads += [""] * (place - len(reads))
            reads.insert(place, self.constant(array))
        makes = [self._names.setdefault(t.name, f"t{len(self._names)}") for t in step.outputs]
        if self._narrow:
            self._narrow_values.update(
                name
                for tensor, name in zip(step.outputs, makes, strict=True)
                if tensor.dtype == "float32"
            )
        expansion = EXPANSIONS.get(step.layer.kind)
        if expansion is None:
            self.node(step.layer.kind, reads, step.layer.settings, makes)
        else:
            expansion(self, reads, makes[0], step.layer.settings)

    def close(self) -> None:
        """Add casts for outputs whose type differs inside the region."""
        self._layer = "outputs"
        for tensor, name in self._ends:
            value = self._names[tensor.name]
            if tensor.dtype == "bool":
                value = self._as(value, TensorProto.FLOAT)
            self._as(value, _TYPES[tensor.dtype], name)

    def node(
        self,
        operator: str,
        reads: Sequence[str],
        settings: Mapping[str, Setting] | None = None,
        makes: Sequence[str] = (),
    ) -> str:
        """Add a node and return the name of its first output."""
        number = len(self.nodes)
        outputs = list(makes) or [f"n{number}"]
        attributes: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in (settings or {}).items()
        }
        name = f"{number} {self._layer}"
        self.nodes.append(helper.make_node(operator, reads, outputs, name=name, **attributes))
        return outputs[0]

    def constant(self, value: Any) -> str:
        """Add a constant, with floats in the precision of the current step."""
        array = np.asarray(value)
        kind = array.dtype.name if array.dtype.name in _CONSTANTS else "float32"
        if kind == "float32" and self._narrow:
            kind = "float16"
        name = f"c{len(self.constants)}"
        self.constants[name] = array.astype(kind)
        return name

    def _opened(self, tensor: Tensor, place: int) -> str:
        name = f"input{place}"
        if tensor.dtype != "bool":
            return name
        return self._as(self._as(name, TensorProto.FLOAT), TensorProto.BOOL)

    def _as(self, value: str, kind: int, makes: str = "") -> str:
        return self.node("Cast", [value], {"to": kind}, [makes] if makes else ())

    def _are_wide(self, step: Step, reads: Sequence[str]) -> bool:
        """Tell whether a step reads a value that is in float32 so far."""
        return any(
            tensor.dtype == "float32" and name not in self._narrow_values
            for tensor, name in zip(step.inputs, reads, strict=True)
        )

    def _in_precision(self, value: str) -> str:
        if (value in self._narrow_values) == self._narrow:
            return value
        if value not in self._cast:
            kind = TensorProto.FLOAT16 if self._narrow else TensorProto.FLOAT
            self._cast[value] = self._as(value, kind)
        return self._cast[value]


def _operands(weights: Mapping[str, Array]) -> list[tuple[int, Array]]:
    return sorted(
        ((int(name.removeprefix("operand")), array) for name, array in weights.items()),
        key=lambda placed: placed[0],
    )


def _declared(tensor: Tensor, name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPES[tensor.dtype], tensor.shape)


def _require_fitting(region: Region) -> None:
    size = sum(array.nbytes for step in region.steps for array in step.layer.weights.values())
    if size > _LARGEST:
        raise BuildError(
            f"a region for TensorRT has {counted(size, 'byte')} of weights, and an ONNX model "
            f"in one piece holds {_LARGEST}",
            hint="keep some of its operators in TVM with [offload] never, which makes two regions",
        )


def _ascii(text: str) -> str:
    """Return a layer's name for TensorRT's messages, with plain characters only."""
    plain = "".join(c if c.isascii() and c.isprintable() else "_" for c in text)
    return plain[:_NAME_LIMIT]
