"""The values between the nodes of an ONNX model, and variants of it that return some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.base.errors import ModelError
from edgekit.base.files import storage_errors
from edgekit.models.inner_value import InnerValue


class OnnxInnerModel:
    """A model file, with every value whose type and shape are known for the inputs' shapes."""

    def __init__(self, path: Path, shapes: Mapping[str, Sequence[int]]) -> None:
        import onnx

        try:
            self._proto = onnx.load(path)
            inferred = _inferred(self._proto, shapes)
        except Exception as error:  # onnx raises many types of errors
            raise ModelError(
                f"{path} can't be read with its inner values",
                hint="a model of more than 2 GB is too large for that",
                details=(str(error)[:1000],),
            ) from error
        types = {info.name: info.type for info in (*inferred.value_info, *inferred.output)}
        self.values = tuple(
            InnerValue(name, node.name or name, node.op_type, types[name])
            for node in inferred.node
            for name in node.output
            if node.op_type != "Constant" and name in types and _is_known(types[name])
        )

    def write(self, path: Path, values: Sequence[InnerValue]) -> None:
        """Write the model with the values of these names as its outputs."""
        import onnx

        types = {value.name: value.handle for value in self.values}
        variant = onnx.ModelProto()
        variant.CopyFrom(self._proto)
        del variant.graph.output[:]
        for value in values:
            variant.graph.output.append(
                onnx.ValueInfoProto(name=value.name, type=types[value.name])
            )
        with storage_errors("write a variant of the model", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            onnx.save(variant, path)


def _inferred(proto: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return the graph with the types of all values that ONNX infers."""
    import onnx

    given = onnx.ModelProto()
    given.CopyFrom(proto)
    for item in given.graph.input:
        for dimension, extent in zip(
            item.type.tensor_type.shape.dim, shapes.get(item.name, ()), strict=False
        ):
            dimension.dim_value = extent
    return onnx.shape_inference.infer_shapes(given, data_prop=True).graph


def _is_known(kind: Any) -> bool:
    shape = kind.tensor_type.shape
    return bool(
        kind.HasField("tensor_type")
        and kind.tensor_type.elem_type
        and kind.tensor_type.HasField("shape")
        and all(dimension.HasField("dim_value") for dimension in shape.dim)
    )
