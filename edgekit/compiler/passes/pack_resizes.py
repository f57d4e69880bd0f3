"""Compute where a linear resize reads, and with what weights, at compile time.

Each line and each pixel of the result is a mean of two old ones. TVM's own loop nest computes
their places in floats, again for every element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te

from edgekit.base.arrays import Array
from edgekit.base.tvm_compat import as_constant
from edgekit.compiler.macs import shape_of
from edgekit.compiler.rewriting import is_call, rewriting

_FUSES_WHAT_FOLLOWS = {"op_pattern": 4}
"""TVM's kOutEWiseFusable: subsequent element-wise operators become part of the kernel."""
_MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def pack_resizes() -> Any:
    """Return the pass; other resizes, and images whose channels do not lie last, are unchanged."""
    return rewriting("PackResizes", _Packer)


@relax.expr_functor.mutator
class _Packer(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.image.resize2d") or 0 in shape_of(call):
            return call
        attrs = call.attrs
        if str(attrs.method) != "linear" or str(attrs.layout) != "NHWC":
            return call
        mode = str(attrs.coordinate_transformation_mode)
        types = {str(each.ty.dtype) for each in (call, call.args[0])}
        if mode not in _MODES or types != {"float32"}:
            return call
        given, wanted = shape_of(call.args[0]), shape_of(call)
        tables = [each for axis in (1, 2) for each in _table(given[axis], wanted[axis], mode)]
        return self.builder_.call_te(
            _resized,
            call.args[0],
            *(as_constant(each) for each in tables),
            primfunc_name_hint="resize",
            primfunc_attrs=_FUSES_WHAT_FOLLOWS,
        )


def _table(extent: int, result: int, mode: str) -> tuple[Array, Array]:
    """Return the two old places of each new one, and the weight of the second, as
    onnxruntime computes them in single precision."""
    places = np.arange(result, dtype="float32")
    scale, half = np.float32(extent) / np.float32(result), np.float32(0.5)
    if mode == "align_corners":
        places = places * (np.float32(extent - 1) / np.float32(max(result - 1, 1)))
    elif mode == "asymmetric":
        places = places * scale
    elif mode == "half_pixel" or result > 1:
        places = (places + half) * scale - half
    places = places.clip(0, extent - 1)
    lower = np.floor(places)
    both = np.stack([lower, np.minimum(lower + 1, extent - 1)])
    # A weight of zero would make NaN of infinity where both are the same place.
    weight = np.where(both[0] == both[1], half, places - lower)
    return both.astype("int32"), weight.astype("float32")


def _resized(
    image: te.Tensor,
    lines: te.Tensor,
    line_weights: te.Tensor,
    pixels: te.Tensor,
    pixel_weights: te.Tensor,
) -> te.Tensor:
    batch, _, _, channels = image.shape
    height, width = line_weights.shape[0], pixel_weights.shape[0]

    def between(first: Any, second: Any, weight: Any) -> Any:
        return first * (1.0 - weight) + second * weight

    def at(n: Any, y: Any, x: Any, c: Any) -> Any:
        above, below = (
            between(
                image[n, lines[row, y], pixels[0, x], c],
                image[n, lines[row, y], pixels[1, x], c],
                pixel_weights[x],
            )
            for row in (0, 1)
        )
        return between(above, below, line_weights[y])

    return te.compute((batch, height, width, channels), at, name="edgekit_resize")
