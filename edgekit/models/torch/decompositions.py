"""Operators that PyTorch's ONNX exporter lacks or gets wrong: `DECOMPOSITIONS` in operators that it
has, `TRANSLATIONS` in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import evaluator
from onnxscript.function_libs.torch_lib.ops import core as torchlib

from edgekit.models.torch import (  # noqa: F401
    along_axes,
    elementwise,
    matrices,
    scattering,
    special,
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
        extent = value.shape[axis] if len(value.shape) else 1
        if not isinstance(extent, int):  # a size that varies, which no constant is compared with
            return function(*given, **options)
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
    array = np.asarray(value).astype(kind.numpy())  # -1 is the largest byte
    stored = node("", "Constant", [], value=ir.tensor(array, dtype=kind))
    stored.type, stored.shape = ir.TensorType(kind), ir.Shape([])
    return stored


def _sampled(
    value: Any, grid: Any, mode: int = 0, padding: int = 0, align_corners: bool = False
) -> Any:
    """Sample an image or a volume. The exporter has only images."""
    options: dict[str, Any] = {
        "mode": ("linear", "nearest", "cubic")[mode],
        "padding_mode": ("zeros", "border", "reflection")[padding],
        "align_corners": int(align_corners),
    }
    return node("", "GridSample", [value, grid], **options)


def _by_libm(name: str) -> Function:
    return lambda value: node(DOMAIN, name, [value])


TRANSLATIONS: dict[Any, Function] = {
    aten.scalar_tensor.default: _scalar,
    aten.atan2.default: lambda first, second: node(DOMAIN, "Atan2", [first, second]),
    aten.embedding.default: _counted_from_start(torchlib.aten_embedding, 1),
    aten.erfc.default: _by_libm("Erfc"),
    aten.gather.default: _counted_from_start(torchlib.aten_gather, 2),
    aten.index_select.default: _counted_from_start(torchlib.aten_index_select, 2),
    aten.grid_sampler_3d.default: _sampled,
    aten.lgamma.default: _by_libm("Lgamma"),
    aten.scatter.src: _counted_from_start(torchlib.aten_scatter_src, 2),
    aten.scatter.value: _counted_from_start(torchlib.aten_scatter_value, 2),
    aten.scatter_add.default: _counted_from_start(torchlib.aten_scatter_add, 2),
    aten.special_bessel_y0.default: _by_libm("BesselY0"),
    aten.special_bessel_y1.default: _by_libm("BesselY1"),
    torch.ops.prims.bessel_j0.default: _by_libm("BesselJ0"),
    torch.ops.prims.bessel_j1.default: _by_libm("BesselJ1"),
    aten.scatter_reduce.two: _counted_from_start(torchlib.aten_scatter_reduce, 2),
}
"""Translations to ONNX in place of the exporter's. ONNX counts negative indices from the end, and
these operators of PyTorch refuse them."""
