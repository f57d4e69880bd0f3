"""Reductions, cumulative sums, and the largest and smallest elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from edgekit.models.onnx.node import Converter, Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import (
    Converters,
    cast,
    known_scalar,
    like,
    positive_axis,
    wide,
)
from edgekit.models.onnx.values import (
    Expr,
    constant,
    dtype_maximum,
    dtype_minimum,
    dtype_named,
    dtype_of,
    is_float,
    shape_of,
)

op = relax.op
Reduce = Callable[[Node, Expr, list[int], bool], Expr]

AXES_INPUT_SINCE = {"ReduceSum": 13}
"""The opset in which the axes became an input; 18 for operators not listed."""


def _axes(node: Node, rank: int) -> list[int]:
    as_input = node.opset >= AXES_INPUT_SINCE.get(node.operator, 18)
    axes = node.integers(1) if as_input else node.get("axes")
    if not axes:
        return [] if as_input and node.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(positive_axis(axis, rank) for axis in axes)


def _reduction(reduce: Reduce, empty: Callable[[str], float | int], always: bool) -> Converter:
    """Return a converter. `empty` is the result for an empty slice; `always` tells whether elements
    are mapped even without axes."""

    def convert(node: Node) -> Outputs:
        value = node.expr(0)
        shape, dtype = shape_of(value), dtype_of(value)
        axes, keep = _axes(node, len(shape)), bool(node.get("keepdims", 1))
        if not axes and not (always and shape):
            return value if not always else cast(reduce(node, value, [], True), dtype)
        if math.prod(shape[axis] for axis in axes) == 0:
            kept = tuple(
                1 if i in axes else e for i, e in enumerate(shape) if keep or i not in axes
            )
            return np.full(kept, empty(dtype)).astype(dtype_named(dtype))
        return cast(node.emit(reduce(node, wide(node, value), axes, keep)), dtype)

    return convert


def _sum(node: Node, value: Expr, axes: list[int], keep: bool) -> Expr:
    return op.sum(value, axes, keep) if axes else value


def _log_sum_exp(node: Node, value: Expr, axes: list[int], keep: bool) -> Expr:
    """Shift by the largest element, so that nothing overflows."""
    if not axes:
        return value
    largest = op.max(value, axes, keepdims=True)
    finite = op.less(op.abs(largest), like(math.inf, value))
    shift = node.emit(op.where(finite, largest, like(0, value)))
    total = op.log(op.sum(op.exp(op.subtract(value, shift)), axes, keep))
    return op.add(total, shift if keep else op.squeeze(shift, axes))


def _l2(node: Node, value: Expr, axes: list[int], keep: bool) -> Expr:
    total = node.emit(_sum(node, op.multiply(value, value), axes, keep))
    if is_float(dtype_of(total)):
        return op.sqrt(total)
    return op.astype(op.sqrt(op.astype(total, "float64")), dtype_of(total))


def _mean(node: Node, value: Expr, axes: list[int], keep: bool) -> Expr:
    if is_float(dtype_of(value)):
        return op.mean(value, axes, keep) if axes else value
    count = math.prod(shape_of(value)[axis] for axis in axes)
    total = op.sum(op.astype(value, "int64"), axes, keep)
    return op.floor_divide(total, constant(count, "int64"))


def _extreme(function: Callable[..., Expr]) -> Reduce:
    def reduce(node: Node, value: Expr, axes: list[int], keep: bool) -> Expr:
        if not axes:
            return value
        if dtype_of(value) == "bool":
            return op.astype(function(op.astype(value, "int8"), axes, keep), "bool")
        if is_float(dtype_of(value)):
            return _float_extreme(node, value, axes, keep, largest=function is op.max)
        return function(value, axes, keep)

    return reduce


def _float_extreme(node: Node, value: Expr, axes: list[int], keep: bool, largest: bool) -> Expr:
    """Reduce from infinity: TVM starts from the largest finite number and makes all -inf finite."""
    start = -math.inf if largest else math.inf
    reducer = te.comm_reducer(
        lambda a, b: tirx.max(a, b) if largest else tirx.min(a, b),
        lambda dtype: tirx.const(start, dtype),
        name="largest" if largest else "smallest",
    )
    shape = shape_of(value)
    kept = tuple(1 if i in axes else e for i, e in enumerate(shape) if keep or i not in axes)

    def compute(tensor: te.Tensor) -> te.Tensor:
        inner = {axis: te.reduce_axis((0, shape[axis])) for axis in axes}

        def at(*index: Expr) -> Expr:
            outer = iter(index)
            places = []
            for axis in range(len(shape)):
                place = next(outer) if keep or axis not in inner else None
                places.append(inner.get(axis, place))
            return reducer(tensor(*places), axis=list(inner.values()))

        return te.compute(kept, at)

    name = "reduce_max" if largest else "reduce_min"
    return node.block.emit_te(compute, value, primfunc_name_hint=name)


def _logarithm(node: Node, value: Expr, axes: list[int], keep: bool) -> Expr:
    return op.log(_sum(node, value, axes, keep))


def _lower(dtype: str) -> float | int:
    return False if dtype == "bool" else dtype_minimum(dtype)


def _upper(dtype: str) -> float | int:
    return True if dtype == "bool" else dtype_maximum(dtype)


def _arg(function: Callable[..., Expr]) -> Converter:
    def convert(node: Node) -> Outputs:
        value = wide(node, node.expr(0))
        if dtype_of(value) == "bool":
            value = node.emit(cast(value, "int8"))
        rank = len(shape_of(value))
        axis, keep = positive_axis(node.get("axis", 0), rank), bool(node.get("keepdims", 1))
        if node.get("select_last_index", 0):
            extent = shape_of(value)[axis]
            flipped = node.emit(op.flip(value, axis))
            index = function(flipped, axis, keep)
            return op.subtract(constant(extent - 1, "int64"), index)
        return function(value, axis, keep)

    return convert


def _cumulative(function: Callable[..., Expr], start: int) -> Converter:
    def convert(node: Node) -> Outputs:
        value = node.expr(0)
        shape, dtype = shape_of(value), dtype_of(value)
        axis = positive_axis(int(known_scalar(node.known(1))), len(shape))
        backwards, exclusive = node.get("reverse", 0), node.get("exclusive", 0)
        if backwards:
            value = node.emit(op.flip(value, axis))
        if exclusive:
            before = tuple(1 if i == axis else e for i, e in enumerate(shape))
            shifted = op.strided_slice(value, [axis], [0], [shape[axis] - 1])
            value = node.emit(
                op.concat([op.broadcast_to(like(start, value), before), shifted], axis)
            )
        result = node.emit(function(value, axis, dtype))
        return op.flip(result, axis) if backwards else result

    return convert


def _top_k(node: Node) -> Outputs:
    value = node.expr(0)
    count = int(node.get("k")) if node.opset < 10 else int(known_scalar(node.known(1)))
    axis = positive_axis(node.get("axis", -1), len(shape_of(value)))
    if count == 0:  # which TVM takes as all axes
        none = node.emit(op.strided_slice(value, [axis], [0], [0]))
        return [none, node.emit(cast(none, "int64"))]
    if count > shape_of(value)[axis]:
        raise RefusedError(f"it asks for the {count} largest of {shape_of(value)[axis]}")
    dtype = dtype_of(value)
    result = node.emit(
        op.topk(
            node.emit(cast(value, "int8")) if dtype == "bool" else value,
            count,
            axis,
            ret_type="both",
            largest=bool(node.get("largest", 1)),
            dtype="int64",
        )
    )
    found, places = (node.emit(relax.TupleGetItem(result, part)) for part in (0, 1))
    return [node.emit(cast(found, dtype)), places]


REDUCTION: Converters = {
    "ArgMax": _arg(op.argmax),
    "ArgMin": _arg(op.argmin),
    "CumProd": _cumulative(op.cumprod, 1),
    "CumSum": _cumulative(op.cumsum, 0),
    "ReduceL1": _reduction(lambda n, v, a, k: _sum(n, op.abs(v), a, k), lambda t: 0, True),
    "ReduceL2": _reduction(_l2, lambda t: 0, True),
    "ReduceLogSum": _reduction(_logarithm, lambda t: -math.inf, True),
    "ReduceLogSumExp": _reduction(_log_sum_exp, lambda t: -math.inf, True),
    "ReduceMax": _reduction(_extreme(op.max), _lower, False),
    "ReduceMean": _reduction(_mean, lambda t: math.nan if is_float(t) else 0, False),
    "ReduceMin": _reduction(_extreme(op.min), _upper, False),
    "ReduceProd": _reduction(lambda n, v, a, k: op.prod(v, a, k) if a else v, lambda t: 1, False),
    "ReduceSum": _reduction(_sum, lambda t: 0, False),
    "ReduceSumSquare": _reduction(
        lambda n, v, a, k: _sum(n, op.multiply(v, v), a, k), lambda t: 0, True
    ),
    "TopK": _top_k,
}
