"""Operators that move values, those along one axis, and image resizing."""

from __future__ import annotations

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT, integers, number, positive
from edgekit.backends.tensorrt.rules.node import checked, node, rule, shape
from edgekit.base.arrays import Array

_PADDINGS = ("constant", "reflect", "edge")
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def rules() -> list[Rule]:
    return [
        *(rule(operator, _view) for operator in ("squeeze", "expand_dims", "flatten")),
        rule("nn.batch_flatten", _view),
        rule("reshape", _view, arguments=2),
        rule("broadcast_to", _expand, arguments=2),
        rule("permute_dims", _permute),
        rule("flip", _flip),
        rule("nn.softmax", _softmax),
        rule("nn.log_softmax", _softmax),
        rule("concat", _concat),
        rule("split", _split),
        rule("strided_slice", _slice, arguments=4),
        rule("strided_slice", _slice, arguments=5),
        rule("take", _take, arguments=2),
        rule("nn.pad", _pad),
        rule("image.resize2d", _resize, arguments=2),
    ]


def _view(match: Match) -> Layer:
    return node(match, "Reshape", operands={1: _extents(match)})


def _extents(match: Match) -> Array:
    """Return the result's extents as an array: an empty list would have no integer type."""
    import numpy as np

    return np.asarray(shape(match, OUT), np.int64)


def _expand(match: Match) -> Layer:
    return node(match, "Expand", operands={1: _extents(match)})


def _permute(match: Match) -> Layer:
    rank, axes = len(shape(match, "input")), match.attrs(OUT).axes
    order = tuple(reversed(range(rank))) if axes is None else positive(integers(axes), rank)
    return node(match, "Transpose", settings={"perm": order})


def _flip(match: Match) -> Layer:
    extents = shape(match, "input")
    axis = int(match.attrs(OUT).axis) % len(extents)
    return _sliced(match, [extents[axis] - 1], [-extents[axis] - 1], [axis], [-1])


def _softmax(match: Match) -> Layer:
    axis = int(match.attrs(OUT).axis) % len(shape(match, "input"))
    logarithmic = match.operator(OUT) == "nn.log_softmax"
    return node(match, "LogSoftmax" if logarithmic else "Softmax", settings={"axis": axis})


def _concat(match: Match) -> Layer:
    rank, wanted = len(shape(match, OUT)), match.attrs(OUT).axis
    fields = match.fields("input")
    for name, field in zip(fields, match.value("input").fields, strict=True):
        match = match.with_part(name, field)
    axis = 0 if wanted is None else int(wanted) % rank
    return node(match, "Concat", fields, settings={"axis": axis})


def _split(match: Match) -> Layer:
    extents = shape(match, "input")
    axis = int(match.attrs(OUT).axis) % len(extents)
    sizes = [
        checked([int(extent) for extent in kind.shape])[axis]
        for kind in match.expression(OUT).ty.fields
    ]
    # The result is a tuple, which has no shape.
    alone = match.with_part(OUT, match.expression("input"))
    return node(alone, "Split", operands={1: sizes}, settings={"axis": axis})


def _slice(match: Match) -> Layer:
    extents, output = shape(match, "input"), shape(match, OUT)
    arguments = match.arguments(OUT)
    axes = positive(integers(arguments[1]), len(extents))
    steps = integers(arguments[4]) if len(arguments) > 4 else (1,) * len(axes)
    starts, ends = [], []
    for axis, start, step in zip(axes, integers(arguments[2]), steps, strict=True):
        from_end = start + extents[axis] if start < 0 else start
        low, high = (0, extents[axis]) if step > 0 else (-1, extents[axis] - 1)
        first = min(max(from_end, low), high)
        last = first + (output[axis] - 1) * step
        starts.append(first)
        ends.append(last + 1 if step > 0 else last - 1 if last > 0 else -extents[axis] - 1)
    return _sliced(match, starts, ends, list(axes), list(steps))


def _sliced(
    match: Match, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> Layer:
    return node(match, "Slice", operands={1: starts, 2: ends, 3: axes, 4: steps})


def _take(match: Match) -> Layer:
    """Take rows and the like by constant indices."""
    wanted, extents = match.attrs(OUT).axis, shape(match, "input")
    indices = match.array("input1")
    if indices is None:
        raise Refused("which elements it takes is computed")
    if wanted is None:
        raise Refused("it takes from the tensor as one row")
    axis = int(wanted) % len(extents)
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < extents[axis]:
        raise Refused("some of what it takes lies outside")
    return node(match, "Gather", operands={1: indices.astype("int64")}, settings={"axis": axis})


def _pad(match: Match) -> Layer:
    attrs = match.attrs(OUT)
    mode, widths = str(attrs.pad_mode), integers(attrs.pad_width)
    if mode not in _PADDINGS:
        raise Refused(f"its padding is by {mode}")
    if min(widths) < 0:
        raise Refused("its padding is negative")
    operands: dict[int, object] = {1: [*widths[::2], *widths[1::2]]}
    if mode == "constant":
        operands[2] = number(attrs.pad_value)
    return node(match, "Pad", operands=operands, settings={"mode": mode})


def _resize(match: Match) -> Layer:
    """Resize; ONNX and TVM share the names of coordinate modes and roundings."""
    attrs, sizes = match.attrs(OUT), _extents(match)
    if str(attrs.layout) != "NCHW":
        raise Refused(f"its layout is {attrs.layout}")
    method, coordinates = str(attrs.method), str(attrs.coordinate_transformation_mode)
    if coordinates not in _COORDINATES:
        raise Refused(f"its coordinates are {coordinates}")
    words: dict[str, Setting] = {"coordinate_transformation_mode": coordinates}
    if method == "linear":
        return node(match, "Resize", operands={3: sizes}, settings={**words, "mode": "linear"})
    rounding = str(attrs.rounding_method)
    if method != "nearest_neighbor":
        raise Refused(f"its method is {method}")
    if (coordinates, rounding) != ("asymmetric", "floor"):
        raise Refused(f"its nearest pixels are by {coordinates}, {rounding}")
    words |= {"mode": "nearest", "nearest_mode": "floor"}
    return node(match, "Resize", operands={3: sizes}, settings=words)
