"""Operators that PyTorch's ONNX exporter lacks or gets wrong: `DECOMPOSITIONS` in operators that it
has, `TRANSLATIONS` in ONNX."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import evaluator
from onnxscript.function_libs.torch_lib.ops import core as torchlib

from edgekit.models.torch import (  # noqa: F401
    along_axes,
    elementwise,
    matrices,
    scattering,
    windows,
)
from edgekit.models.torch.decomposing import DECOMPOSITIONS, Function, aten

__all__ = ["DECOMPOSITIONS", "DOMAIN", "TRANSLATIONS", "node"]

DOMAIN = "edgekit"
"""The domain of the importer's operators that ONNX does not have."""


def node(domain: str, name: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> Any:
    """Add a node to the ONNX graph under construction, and return its outputs."""
    values = [value for value in inputs if isinstance(value, ir.Value)]
    added = ir.Node(
        domain, name, values, ir.convenience.convert_attributes(attributes), num_outputs=outputs
    )
    recorder: Any = evaluator.default()
    recorder.nodes.append(added)
    return added.outputs[0] if outputs == 1 else list(added.outputs)


def _counted_from_start(function: Function, place: int) -> Function:
    """Return a translation whose indices, the argument at `place`, may not be negative."""

    def translate(value: Any, *arguments: Any, **options: Any) -> Any:
        given = [value, *arguments]
        axis = given[1] if place == 2 else 0
        extent = int(value.shape[axis]) if len(value.shape) else 1
        indices = given[place]
        given[place] = node(DOMAIN, "FromStart", [indices], extent=extent)
        given[place].type, given[place].shape = indices.type, indices.shape
        return function(*given, **options)

    return translate


def _scalar(value: Any, dtype: int = ir.DataType.FLOAT, **_: Any) -> Any:
    """Store a number in its own type. The exporter's would pass through float32."""
    if isinstance(value, ir.Value):
        return torchlib.aten_scalar_tensor(value, dtype=dtype)
    kind = ir.DataType(dtype)
    stored = node("", "Constant", [], value=ir.tensor(value, dtype=kind))
    stored.type, stored.shape = ir.TensorType(kind), ir.Shape([])
    return stored


TRANSLATIONS: dict[Any, Function] = {
    aten.scalar_tensor.default: _scalar,
    aten.atan2.default: lambda first, second: node(DOMAIN, "Atan2", [first, second]),
    aten.embedding.default: _counted_from_start(torchlib.aten_embedding, 1),
    aten.erfc.default: lambda value: node(DOMAIN, "Erfc", [value]),
    aten.gather.default: _counted_from_start(torchlib.aten_gather, 2),
    aten.index_select.default: _counted_from_start(torchlib.aten_index_select, 2),
    aten.lgamma.default: lambda value: node(DOMAIN, "Lgamma", [value]),
    aten.scatter.src: _counted_from_start(torchlib.aten_scatter_src, 2),
    aten.scatter.value: _counted_from_start(torchlib.aten_scatter_value, 2),
    aten.scatter_add.default: _counted_from_start(torchlib.aten_scatter_add, 2),
    aten.scatter_reduce.two: _counted_from_start(torchlib.aten_scatter_reduce, 2),
}
"""Translations to ONNX in place of the exporter's. ONNX counts negative indices from the end, and
these operators of PyTorch refuse them."""
