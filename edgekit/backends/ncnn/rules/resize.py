"""Image resizing, where ncnn and the model agree on coordinates."""

from __future__ import annotations

import numpy as np
from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule
from edgekit.backends.match import Match
from edgekit.backends.ncnn.rules.common import held_shape, require_batch_of_one
from edgekit.backends.rule_tools import OUT

_NEAREST, _BILINEAR = 1, 2


def rules() -> list[Rule]:
    value, size = wildcard(), wildcard()
    call = is_op("relax.image.resize2d")(value, size)
    return [Rule("image.resize2d", call, {"input": value, OUT: call}, _take)]


def _take(match: Match) -> Layer:
    held_shape(match, "input")
    attrs, shape, output = match.attrs(OUT), match.shape("input"), match.shape(OUT)
    require_batch_of_one(shape)
    if str(attrs.layout) != "NCHW":
        raise Refused(f"its layout is {attrs.layout}")
    method, coordinates = str(attrs.method), str(attrs.coordinate_transformation_mode)
    height, width = output[2:]
    settings = {"output_height": height, "output_width": width}
    if method == "nearest_neighbor":
        if coordinates != "asymmetric" or str(attrs.rounding_method) != "floor":
            raise Refused(f"its nearest pixel is by {coordinates}, {attrs.rounding_method}")
        _require_same_pixels(shape[2], height)
        _require_same_pixels(shape[3], width)
        return Layer("Interp", ("input",), {**settings, "resize_type": _NEAREST})
    if method != "linear":
        raise Refused(f"its method is {method}")
    corners = coordinates == "align_corners"
    if coordinates == "pytorch_half_pixel" and min(height, width) == 1:
        raise Refused("its single pixel is the first, and ncnn's the middle one")
    if not corners and coordinates not in ("half_pixel", "pytorch_half_pixel"):
        raise Refused(f"its coordinates are {coordinates}")
    settings |= {"resize_type": _BILINEAR, "align_corner": int(corners)}
    return Layer("Interp", ("input",), settings)


def _require_same_pixels(extent: int, output: int) -> None:
    """Refuse factors for which ncnn's float32 product falls just below the whole coordinate."""
    places = np.arange(output)
    factor = np.float32(extent) / np.float32(output)
    theirs = np.minimum((places.astype(np.float32) * factor).astype(np.int64), extent - 1)
    if (theirs != places * extent // output).any():
        raise Refused(f"ncnn's nearest pixels from {extent} to {output} are others")
