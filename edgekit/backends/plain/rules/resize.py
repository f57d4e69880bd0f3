"""Image resizing, where the library and the model agree on coordinates."""

from __future__ import annotations

import math
from fractions import Fraction

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule
from edgekit.backends.match import Match
from edgekit.backends.plain.rules.takes import Takes
from edgekit.backends.rule_tools import OUT

_HALF = Fraction(1, 2)


def rules(takes: Takes) -> list[Rule]:
    if "resize" not in takes.others:
        return []
    value, size = wildcard(), wildcard()
    call = is_op("relax.image.resize2d")(value, size)
    parts = {"input": value, OUT: call}
    return [Rule("image.resize2d", call, parts, lambda match: _take(match, takes))]


def _take(match: Match, takes: Takes) -> Layer:
    attrs = match.attrs(OUT)
    shape, output = takes.shape(match, "input"), takes.shape(match, OUT)
    if str(attrs.layout) != "NCHW":
        raise Refused(f"its layout is {attrs.layout}")
    method, coordinates = str(attrs.method), str(attrs.coordinate_transformation_mode)
    if method == "nearest_neighbor":
        for extent, wanted in zip(shape[2:], output[2:], strict=True):
            _require_same_pixels(extent, wanted, coordinates, str(attrs.rounding_method))
        return Layer("resize", ("input",), {"operation": "nearest"})
    if method != "linear":
        raise Refused(f"its method is {method}")
    if coordinates == "pytorch_half_pixel" and min(output[2:]) == 1:
        raise Refused("its single pixel is the first, and the library's the middle one")
    if coordinates not in ("half_pixel", "pytorch_half_pixel"):
        raise Refused(f"its coordinates are {coordinates}")
    return Layer("resize", ("input",), {"operation": "linear"})


def _require_same_pixels(extent: int, output: int, coordinates: str, rounding: str) -> None:
    """Refuse resizes with ties: the library takes the pixel whose middle is nearest to the new
    pixel's middle, and leaves open which of two equally near pixels it takes."""
    for place in range(output):
        middle = (place + _HALF) * extent / output - _HALF
        theirs = math.floor(middle + _HALF)
        if (middle + _HALF).denominator == 1:
            raise Refused("two of its pixels are as near")
        if theirs != _nearest(place, extent, output, coordinates, rounding):
            raise Refused(f"its nearest pixels are by {coordinates}, {rounding}")


def _nearest(place: int, extent: int, output: int, coordinates: str, rounding: str) -> int:
    if coordinates == "asymmetric":
        exact = Fraction(place * extent, output)
    elif coordinates in ("half_pixel", "pytorch_half_pixel"):
        exact = (place + _HALF) * extent / output - _HALF
    else:
        raise Refused(f"its coordinates are {coordinates}")
    if rounding == "floor":
        found = math.floor(exact)
    elif rounding in ("round", "round_prefer_floor", "round_prefer_ceil", ""):
        found = math.floor(exact + _HALF)
        if (exact + _HALF).denominator == 1:
            raise Refused("two of its pixels are as near")
    else:
        raise Refused(f"its rounding is {rounding}")
    return min(max(found, 0), extent - 1)
