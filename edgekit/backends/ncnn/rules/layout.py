"""Operators that move values: views, permutations, slices and padding."""

from __future__ import annotations

from collections.abc import Callable

from tvm.relax.dpl import is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule, Setting
from edgekit.backends.match import Match
from edgekit.backends.ncnn.layout import AXES, ORDERS, checked, held, held_axis, leading
from edgekit.backends.ncnn.net import extents
from edgekit.backends.ncnn.rules.common import held_shape
from edgekit.backends.rule_tools import OUT, integers, number


def rules() -> list[Rule]:
    return [
        _rule("reshape", 2, _view),
        _rule("squeeze", 1, _view),
        _rule("expand_dims", 1, _view),
        _rule("flatten", 1, _view),
        _rule("nn.batch_flatten", 1, _view),
        _rule("permute_dims", 1, _permute),
        _rule("nn.softmax", 1, _softmax),
        _rule("concat", 1, _concat),
        _rule("split", 1, _split),
        _rule("strided_slice", 4, _slice),
        _rule("strided_slice", 5, _slice),
        _rule("nn.pad", 1, _pad),
    ]


def _rule(operator: str, arguments: int, take: Callable[[Match], Layer]) -> Rule:
    value = wildcard()
    call = is_op(f"relax.{operator}")(value, *(wildcard() for _ in range(arguments - 1)))
    return Rule(operator, call, {"input": value, OUT: call}, take)


def _view(match: Match) -> Layer:
    held_shape(match, "input")
    return Layer("Reshape", ("input",), extents(held_shape(match, OUT)))


def _permute(match: Match) -> Layer:
    """Permute axes; a leading axis of one holds no data and may move anywhere."""
    own = held_shape(match, "input")
    held_shape(match, OUT)
    shape, axes = match.shape("input"), match.attrs(OUT).axes
    full = tuple(reversed(range(len(shape)))) if axes is None else integers(axes)
    order = [axis % len(shape) - leading(shape) for axis in full]
    kept = [axis for axis in order if axis >= 0]
    names = AXES[len(own)]
    innermost_first = "".join(names[axis] for axis in reversed(kept))
    settings: dict[str, Setting] = {
        "order_type": ORDERS[len(own)].index(innermost_first),
        "makes": tuple(own[axis] for axis in kept),
    }
    return Layer("Permute", ("input",), settings)


def _softmax(match: Match) -> Layer:
    held_shape(match, "input")
    held_shape(match, OUT)
    axis = held_axis(match.shape("input"), int(match.attrs(OUT).axis))
    return Layer("Softmax", ("input",), {"axis": axis, "fixbug0": 1})


def _concat(match: Match) -> Layer:
    held_shape(match, OUT)
    parts, shape = match.fields("input"), match.shape(OUT)
    wanted = match.attrs(OUT).axis
    axis = 0 if wanted is None else int(wanted) % len(shape)
    kinds = [field.ty for field in match.value("input").fields]
    if any(str(kind.dtype) != "float32" for kind in kinds):
        raise Refused("one of its inputs is not float32")
    if axis > 0:
        return Layer("Concat", parts, {"axis": held_axis(shape, axis)})
    # Along the first axis: every input under its full shape.
    settings: dict[str, Setting] = {"axis": 0, "makes": checked(shape)}
    for place, kind in enumerate(kinds):
        settings[f"view{place}"] = checked(tuple(int(extent) for extent in kind.shape))
    return Layer("Concat", parts, settings)


def _split(match: Match) -> Layer:
    held_shape(match, "input")
    shape, attrs = match.shape("input"), match.attrs(OUT)
    axis = held_axis(shape, int(attrs.axis))
    pieces = [
        tuple(int(extent) for extent in kind.shape) for kind in match.expression(OUT).ty.fields
    ]
    sizes = tuple(held(piece)[axis] for piece in pieces)
    return Layer("Slice", ("input",), {"slices": sizes, "axis": axis})


def _slice(match: Match) -> Layer:
    held_shape(match, "input")
    held_shape(match, OUT)
    shape, output = match.shape("input"), match.shape(OUT)
    arguments = match.arguments(OUT)
    wanted, starts = integers(arguments[1]), integers(arguments[2])
    if len(arguments) > 4 and any(step != 1 for step in integers(arguments[4])):
        raise Refused("it takes every so many elements, which ncnn can't")
    cuts = {}
    for axis, start in zip(wanted, starts, strict=True):
        place = axis % len(shape)
        first = min(max(start + shape[place] if start < 0 else start, 0), shape[place])
        if output[place] != shape[place]:
            cuts[held_axis(shape, place)] = (first, first + output[place])
    if not cuts:
        return Layer("Reshape", ("input",), extents(held(output)))
    own = held(shape)
    made = tuple(
        cuts[axis][1] - cuts[axis][0] if axis in cuts else extent for axis, extent in enumerate(own)
    )
    axes = tuple(sorted(cuts))
    settings: dict[str, Setting] = {
        "starts": tuple(cuts[axis][0] for axis in axes),
        "ends": tuple(cuts[axis][1] for axis in axes),
        "axes": axes,
        "makes": made,
    }
    return Layer("Crop", ("input",), settings)


def _pad(match: Match) -> Layer:
    own = held_shape(match, "input")
    held_shape(match, OUT)
    shape, attrs = match.shape("input"), match.attrs(OUT)
    if str(attrs.pad_mode) != "constant":
        raise Refused(f"its padding is by {attrs.pad_mode}")
    widths = integers(attrs.pad_width)
    pairs = [(widths[2 * axis], widths[2 * axis + 1]) for axis in range(len(shape))]
    if any(low < 0 or high < 0 for low, high in pairs):
        raise Refused("its padding is negative")
    if leading(shape) and any(pairs[0]):
        raise Refused("it pads the batch axis, which ncnn has not")
    names = (("left", "right"), ("top", "bottom"), ("front", "behind"))
    settings: dict[str, Setting] = {"type": 0, "value": number(attrs.pad_value)}
    for place, pair in enumerate(reversed(pairs[leading(shape) :])):
        if not any(pair):
            continue
        if place == 3:
            raise Refused("it pads the outermost of four axes, which ncnn can't")
        settings |= dict(zip(names[place], pair, strict=True))
    made = tuple(
        extent + sum(pair) for extent, pair in zip(own, pairs[leading(shape) :], strict=True)
    )
    return Layer("Padding", ("input",), {**settings, "makes": made})
