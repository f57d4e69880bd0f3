"""A region as an ONNX model, which TensorRT's own parser reads on the device.

Opset 17 and IR version 8: what the parser of TensorRT 8.5 knows. Inputs are `input0`, `input1` and
so on in the region's order, outputs `output0`: the runner binds them by these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.arrays import Array
from edgekit.backends.base import Region, Setting, Step, Tensor
from edgekit.backends.tensorrt.expansions import EXPANSIONS
from edgekit.errors import BuildError

OPSET, IR_VERSION = 17, 8
_LARGEST = 2**31 - 2**20
"""What a message of protobuf's can hold, less some room for all that are not weights."""
_NAME_LIMIT = 80
_TYPES = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8}
_CONSTANTS = ("float32", "int64", "int8")


def onnx_of(region: Region) -> onnx.ModelProto:
    """Checked by ONNX's own checker; BuildError where the region has more weights than fit."""
    _require_fitting(region)
    graph = Graph(region)
    for step in region.steps:
        graph.step(step)
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
    """Nodes and constants as they come about, under short names."""

    def __init__(self, region: Region) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self._names = {tensor.name: f"input{place}" for place, tensor in enumerate(region.inputs)}
        self._names |= {t.name: f"output{place}" for place, t in enumerate(region.outputs)}
        self._layer = ""

    def step(self, step: Step) -> None:
        self._layer = _ascii("+".join(step.nodes or step.operators))
        reads = [self._names[tensor.name] for tensor in step.inputs]
        for place, array in _operands(step.layer.weights):
            # Inputs that are left out in between have no name.
            reads += [""] * (place - len(reads))
            reads.insert(place, self.constant(array))
        makes = [self._names.setdefault(t.name, f"t{len(self._names)}") for t in step.outputs]
        expansion = EXPANSIONS.get(step.layer.kind)
        if expansion is None:
            self.node(step.layer.kind, reads, step.layer.settings, makes)
        else:
            expansion(self, reads, makes[0], step.layer.settings)

    def node(
        self,
        operator: str,
        reads: Sequence[str],
        settings: Mapping[str, Setting] | None = None,
        makes: Sequence[str] = (),
    ) -> str:
        """What the first of its outputs is called."""
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
        array = np.asarray(value)
        kind = array.dtype.name if array.dtype.name in _CONSTANTS else "float32"
        name = f"c{len(self.constants)}"
        self.constants[name] = array.astype(kind)
        return name


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
            f"a region for TensorRT has {size} bytes of weights, and an ONNX model in one piece "
            f"holds {_LARGEST}",
            hint="keep some of its operators in TVM with [offload] never, which makes two regions",
        )


def _ascii(text: str) -> str:
    """What TensorRT's messages call a layer: from a model file, so nothing but plain characters."""
    plain = "".join(c if c.isascii() and c.isprintable() else "_" for c in text)
    return plain[:_NAME_LIMIT]
