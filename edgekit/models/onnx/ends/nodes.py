"""Writes the ONNX nodes before and behind a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.base.arrays import Array
from edgekit.base.tensors import Quantization

BOOL = onnx.TensorProto.BOOL
FLOAT, INT32, UINT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.UINT8
OPSET = 18
"""The version of ONNX that is written."""


def of_model(name: str) -> str:
    """Return the name that a tensor of the model has in the graphs around it."""
    return f"model/{name}"


class Nodes:
    """A list of nodes under construction. Values are the names of tensors."""

    def __init__(self, prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._prefix = prefix
        self._count = 0

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node, and return its first output."""
        return self.several(operator, *inputs, outputs=outputs, **attributes)[0]

    def several(
        self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any
    ) -> tuple[str, ...]:
        name = self._name(operator)
        made = tuple(name if i == 0 else f"{name}:{i}" for i in range(outputs))
        self.nodes.append(helper.make_node(operator, inputs, made, name=name, **attributes))
        return made

    def named(self, value: str, name: str) -> None:
        """Give a value the name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=self._name(name)))

    def constant(self, value: Array | float, dtype: str = "float32") -> str:
        name = self._name("constant")
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values), "int64")

    def reshaped(self, value: str, *shape: int) -> str:
        return self.add("Reshape", value, self.whole(*shape))

    def sliced(self, value: str, axis: int, start: int, stop: int) -> str:
        bounds = (self.whole(start), self.whole(stop), self.whole(axis))
        return self.add("Slice", value, *bounds)

    def resized(self, value: str, shape: Sequence[int], interpolation: str) -> str:
        """Resize an image as OpenCV and PyTorch do, without antialiasing."""
        coordinates: dict[str, Any] = {"coordinate_transformation_mode": "half_pixel"}
        if interpolation == "nearest":
            coordinates = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        sizes = self.whole(*shape)
        return self.add("Resize", value, "", "", sizes, mode=interpolation, **coordinates)

    def cast(self, value: str, kind: int) -> str:
        return self.add("Cast", value, to=kind)

    def largest(self, value: str, axis: int) -> str:
        """Return the largest element along an axis, which goes."""
        return self.add("ReduceMax", value, self.whole(axis), keepdims=0)

    def top(self, value: str, count: int) -> tuple[str, str]:
        """Return the largest elements of a vector, and their places."""
        values, places = self.several("TopK", value, self.whole(count), axis=0, outputs=2)
        return values, places

    def real(self, value: str, dtype: str, quantization: Quantization | None) -> str:
        """Return a tensor as float32, real numbers for a quantised one."""
        found = value if dtype == "float32" else self.cast(value, FLOAT)
        if quantization is not None:
            zero, scale = quantization.zero_points[0], quantization.scales[0]
            found = self.add("Sub", found, self.constant(zero))
            found = self.add("Mul", found, self.constant(scale))
        return found

    def clipped(self, value: str, low: float, high: Sequence[float] | float) -> str:
        limited = self.add("Max", value, self.constant(np.asarray(low)))
        return self.add("Min", limited, self.constant(np.asarray(high)))

    def _name(self, what: str) -> str:
        self._count += 1
        return f"edgekit/{self._prefix}/{what}_{self._count}"
