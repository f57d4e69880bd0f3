"""Operators that the model applies directly to stored values, without a dequantize before them."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from edgekit.aot.operators import Lookup
from edgekit.aot.quantised import images, joins
from edgekit.aot.quantised.graph import Graph, Source, Target, UnfitError, is_call
from edgekit.aot.quantised.group import Context, Group
from edgekit.aot.quantised.tables import STORED
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.macs import shape_of


def match_stored(context: Context, call: Any, target: Target) -> Group | None:
    """Match an operator on stored values; `target` gives the range of the result, not its scale."""
    graph, offset = context.graph, offset_of(call)
    if is_call(call, *images.MAX_POOLS):
        return images.max_pool(call, _source(graph, call.args[0]), target, context.litert)
    if is_call(call, "relax.image.resize2d"):
        source = _source(graph, call.args[0])
        return images.resize_nearest(call, source, target, context.litert)
    if is_call(call, "relax.nn.pad"):
        value = int(call.attrs.pad_value) - offset
        return joins.pad(context, call, _source(graph, call.args[0]), value)
    if is_call(call, "relax.concat"):
        parts = graph.value(call.args[0])
        if isinstance(parts, relax.Tuple):
            sources = [_source(graph, part) for part in parts.fields]
            return joins.concatenate(context, call, sources, target)
    if is_call(call, "relax.astype"):
        pool = _rounded_average(graph, call)
        if pool is not None:
            source = _source(graph, graph.value(pool.args[0]).args[0])
            return images.average_pool(context, pool, source, target)
    if is_call(call, "relax.clip"):
        source = _source(graph, call.args[0])
        table = tuple(max(target.low, min(target.high, value)) for value in STORED)
        elements = math.prod(source.shape)
        last = context.is_last(source)
        return Group(Lookup(elements, "clip", table), (source,), source.shape, last)
    return None


def clipped(call: Any, target: Target) -> Target:
    """Return the part of a range of stored values that `relax.clip` leaves."""
    offset = offset_of(call)
    low, high = (int(argument.value) - offset for argument in call.args[1:3])
    least, most = max(target.low, low), min(target.high, high)
    return Target(target.scale, target.zero_point, least, max(most, least))


def offset_of(call: Any) -> int:
    """Return the difference between the model's stored values and their int8 form."""
    return 128 if str(call.ty.dtype) == "uint8" else 0


def _source(graph: Graph, expression: Any) -> Source:
    tensor = graph.tensor(expression)
    if constant_array(graph.value(tensor)) is not None:
        raise UnfitError("it computes on a constant")  # a step reads buffers
    return Source(tensor, (), shape_of(expression), 1.0, 0)


def _rounded_average(graph: Graph, call: Any) -> Any | None:
    """Match the average of stored values with round-half-away as the TFLite importer writes it."""
    total = graph.value(call.args[0])
    if not is_call(total, "relax.add"):
        return None
    pool, half = graph.value(total.args[0]), graph.value(total.args[1])
    if not is_call(pool, "relax.nn.avg_pool2d") or not is_call(half, "relax.multiply"):
        return None
    sign, source = graph.value(half.args[0]), graph.value(pool.args[0])
    stored = is_call(source, "relax.astype") and str(source.args[0].ty.dtype) in ("int8", "uint8")
    if not stored or not is_call(sign, "relax.sign") or graph.number(half.args[1]) != 0.5:
        return None
    return pool if graph.value(sign.args[0]).same_as(pool) else None
