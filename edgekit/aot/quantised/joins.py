"""Operators that join stored values: concatenation and padding."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from edgekit.aot.operators import Concatenate, Pad
from edgekit.aot.quantised import tables
from edgekit.aot.quantised.graph import Source, Target, UnfitError, integers, is_call
from edgekit.aot.quantised.group import Context, Group, ordered_last, required, to_last
from edgekit.compiler.macs import shape_of


def match_join(context: Context, value: Any, target: Target) -> Group | None:
    graph = context.graph
    if is_call(value, "relax.nn.pad"):
        source = required(context, value.args[0])
        stored = Target(source.scale, source.zero_point).stored(float(value.attrs.pad_value))
        group = pad(context, value, source, stored)
        if source.means_the_same(target):
            return group
        elements = math.prod(shape_of(value))
        then = tables.rescaled(source, target, elements, context.litert)
        return Group(group.operator, group.inputs, group.shape, group.channels_last, then)
    if not is_call(value, "relax.concat"):
        return None
    parts = graph.value(value.args[0])
    if not isinstance(parts, relax.Tuple):
        return None
    return concatenate(context, value, [required(context, part) for part in parts.fields], target)


def concatenate(context: Context, call: Any, parts: list[Source], target: Target) -> Group:
    """Return all parts in the result's quantisation, converted by a table where necessary."""
    shape = shape_of(call)
    last = any(context.is_last(part) for part in parts)
    axis = int(call.attrs.axis) % len(shape)
    operator = Concatenate(
        tuple(_ordered(part.shape, last) for part in parts),
        to_last(len(shape)).index(axis) if last else axis,
    )
    before = tuple(
        None
        if part.means_the_same(target)
        else tables.rescaled(part, target, math.prod(part.shape), context.litert)
        for part in parts
    )
    return Group(operator, tuple(parts), shape, last, before=before)


def pad(context: Context, call: Any, source: Source, value: int) -> Group:
    if str(call.attrs.pad_mode) != "constant":
        raise UnfitError(f"it pads by '{call.attrs.pad_mode}'")
    widths = integers(call.attrs.pad_width)
    before, after = widths[::2], widths[1::2]
    if any(width < 0 for width in widths):
        raise UnfitError("it cuts off instead of padding")
    last = context.is_last(source)
    operator = Pad(
        _ordered(source.shape, last), _ordered(before, last), _ordered(after, last), value
    )
    return Group(operator, (source,), shape_of(call), last)


def _ordered(extents: tuple[int, ...], last: bool) -> tuple[int, ...]:
    return ordered_last(extents) if last else extents
