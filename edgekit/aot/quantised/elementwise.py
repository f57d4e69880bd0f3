"""Sums, products and functions of single elements of quantised tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit.aot.arithmetic import ADD_LEFT_SHIFT, fixed_point, float_product
from edgekit.aot.operators import Add, FixedPoint, Multiply, Operand, Rescale, Scales
from edgekit.aot.quantised import tables
from edgekit.aot.quantised.graph import (
    Graph,
    Source,
    Target,
    is_call,
    operator_name,
)
from edgekit.aot.quantised.group import (
    Context,
    Group,
    activation,
    activation_bounds,
    ordered_last,
    to_last,
)
from edgekit.base.arrays import Array
from edgekit.compiler.macs import shape_of

_UNUSED = FixedPoint(0, 0)


def match_pair(context: Context, value: Any, target: Target) -> Group | None:
    """Match a sum, difference or product of two quantised tensors."""
    value, target = activation(context, value, target)
    if not is_call(value, "relax.add", "relax.subtract", "relax.multiply"):
        return None
    left, right = (context.graph.source(argument) for argument in value.args)
    if left is None or right is None or (left.is_constant and right.is_constant):
        return None
    shape = shape_of(value)
    sides = (left, right)
    moving = [side for side in sides if not side.is_constant]
    last = any(context.is_last(side) for side in moving) and all(
        len(side.shape) == len(shape) for side in moving
    )
    result = ordered_last(shape) if last else shape
    rank = len(shape) if last else 0
    scales = Scales((left.scale, right.scale), target.scale)
    if is_call(value, "relax.multiply"):
        # LiteRT multiplies the scales in single precision.
        product = float_product(left.scale, right.scale)
        factor = fixed_point(float(np.float32(product) / np.float32(target.scale)))
        operator: Add | Multiply = Multiply(
            _operand(left, _UNUSED, rank),
            _operand(right, _UNUSED, rank),
            result,
            _rescale(factor, target),
            scales,
        )
    else:
        common = 2.0 * max(left.scale, right.scale)
        operator = Add(
            _operand(left, fixed_point(left.scale / common), rank),
            _operand(right, fixed_point(right.scale / common), rank),
            ADD_LEFT_SHIFT,
            is_call(value, "relax.subtract"),
            result,
            _rescale(fixed_point(common / (2.0**ADD_LEFT_SHIFT * target.scale)), target),
            scales,
        )
    return Group(operator, tuple(moving), shape, last)


def _operand(source: Source, factor: FixedPoint, rank: int) -> Operand:
    """Return a side, with the channels of its `rank` dimensions moved last where that is not 0."""
    if not source.is_constant:
        shape = ordered_last(source.shape) if rank else source.shape
        return Operand(shape, source.zero_point, factor)
    values = source.values()
    if rank:
        wide = values.reshape((1,) * (rank - values.ndim) + values.shape)
        values = np.ascontiguousarray(wide.transpose(to_last(rank)))
    return Operand(values.shape, source.zero_point, factor, values)


def _rescale(factor: FixedPoint, target: Target) -> Rescale:
    return Rescale((factor,), target.zero_point, target.low, target.high)


def match_function(context: Context, value: Any, target: Target) -> Group | None:
    """Match a function of each element: one table, or none where it changes nothing."""
    leaf = _only_source(context.graph, value)
    if leaf is None or leaf.is_constant:
        return None
    shape = shape_of(value)
    elements = math.prod(shape)
    if math.prod(leaf.shape) != elements:
        return None
    table = _litert_table(context, value, leaf, target, elements) if context.litert else None
    if table is None:
        function = _Function(context.graph)
        table = tables.by_floats(
            leaf,
            target,
            elements,
            _name(context.graph, value),
            lambda real: function(value, real),
            even=not context.litert,
        )
    last = leaf.shape == shape and context.is_last(leaf)
    return Group(table, (leaf,), shape, last)


def _litert_table(
    context: Context, value: Any, leaf: Source, target: Target, elements: int
) -> Any | None:
    """Match functions that LiteRT computes in integers."""
    graph = context.graph
    if graph.source(value) is not None:
        return tables.rescaled(leaf, target, elements, litert=True)
    bounds = activation_bounds(context, value)
    if bounds is not None and graph.source(bounds[0]) is not None:
        narrowed = target.between(bounds[1], bounds[2])
        return tables.cut_off(leaf, narrowed, elements, _name(graph, value))
    if is_call(value, "relax.nn.leakyrelu") and graph.source(value.args[0]) is not None:
        return tables.leaky_relu(leaf, target, elements, float(value.attrs.alpha))
    if is_call(value, "relax.abs") and graph.source(value.args[0]) is not None:
        return tables.absolute(leaf, target, elements)
    if _is_hard_swish(context, value):
        return tables.hard_swish(leaf, target, elements)
    return None


def _is_hard_swish(context: Context, value: Any) -> bool:
    """Match x * clip(x + 3, 0, 6) / 6."""
    graph = context.graph
    if not is_call(value, "relax.divide") or graph.number(value.args[1]) != 6.0:
        return False
    product = graph.value(value.args[0])
    if not is_call(product, "relax.multiply") or graph.source(product.args[0]) is None:
        return False
    bounds = activation_bounds(context, graph.value(product.args[1]))
    if bounds is None or bounds[1:] != (0.0, 6.0):
        return False
    total = graph.value(bounds[0])
    return is_call(total, "relax.add") and graph.number(total.args[1]) == 3.0


def _only_source(graph: Graph, value: Any) -> Source | None:
    """Return the only quantised tensor that an element-wise expression reads."""
    found: list[Source] = []

    def follow(expression: Any) -> bool:
        source = graph.source(expression)
        if source is not None and not source.is_constant:
            found.append(source)
            return len(found) < 64
        if graph.number(expression) is not None:
            return True
        call = graph.value(expression)
        if is_call(call, "relax.clip", *tables.FUNCTIONS):
            return all(follow(argument) for argument in _tensors(call))
        return False

    if not follow(value) or not found:
        return None
    first = found[0]
    same = all(
        other.tensor.same_as(first.tensor)
        and (other.scale, other.zero_point) == (first.scale, first.zero_point)
        and (other is first or (not other.moves and not first.moves))
        for other in found
    )
    return first if same else None


def _tensors(call: Any) -> list[Any]:
    return list(call.args[:1] if is_call(call, "relax.clip") else call.args)


class _Function:
    """An element-wise expression, computed for real values of its only source."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, expression: Any, real: Array) -> Array:
        graph = self._graph
        source = graph.source(expression)
        if source is not None and not source.is_constant:
            return real
        number = graph.number(expression)
        if number is not None:
            constant = graph.real_constant(expression)
            assert constant is not None
            return np.full(real.shape, constant.reshape(-1)[0])
        call = graph.value(expression)
        if is_call(call, "relax.clip"):
            low, high = (np.float32(argument.value) for argument in call.args[1:3])
            return np.clip(self(call.args[0], real), low, high)
        arguments = [self(argument, real) for argument in call.args]
        return tables.FUNCTIONS[str(call.op.name)](arguments, call.attrs)


def _name(graph: Graph, value: Any) -> str:
    call = graph.value(value)
    return "requantise" if graph.source(value) is not None else operator_name(call)
