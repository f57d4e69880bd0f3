"""Products of integers, with numbers that are quantised while the model runs.

The numbers are int8 on both sides, as dot products of CPUs want them, and zero points are applied
to the sums: each is a column's sum of weights, known on import, times one number. Scales and biases
follow element by element, so that they become part of the product's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.rewriting import is_call
from edgekit.compiler.schedules.blocks import largest_divisor
from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import Converters, like, reshape
from edgekit.models.onnx.operators.convolution import convolve, pads_of, spatial, without_zero_point
from edgekit.models.onnx.values import Expr, Tensor, as_expr, dtype_of, is_known, shape_of

op = relax.op
_WIDTH = 64
"""The most numbers that are compared at the same time."""


@dataclass(frozen=True)
class Quantised:
    """Numbers that are quantised while the model runs: real = scale * (stored - zero)."""

    stored: Expr
    """int8."""
    zero: Expr
    """int32, a scalar or one for each row."""
    scale: Expr | None = None
    """float32, a scalar."""


@dataclass(frozen=True)
class Weight:
    """A known matrix of integers."""

    stored: np.ndarray
    """(inputs, outputs), int8."""
    zero: np.ndarray
    """int32, a scalar or one for each output."""
    scale: Expr | None = None
    """float32, a scalar or one for each output."""


def signed(node: Node, value: Expr) -> Expr:
    """Return uint8 numbers as int8, 128 lower."""
    if dtype_of(value) == "int8":
        return value
    raised = _before_raising(node, value)
    bound: Any = None if raised is None else node.block.lookup_binding(raised)
    if is_call(bound, "relax.astype") and dtype_of(bound.args[0]) == "int8":
        return bound.args[0]
    wide = node.emit(op.astype(value, "int16"))
    return node.emit(op.astype(node.emit(op.subtract(wide, like(128, wide))), "int8"))


def _unsigned(node: Node, value: Expr) -> Expr:
    """Return int8 numbers as uint8, 128 higher; `signed` finds its way back."""
    wide = node.emit(op.astype(value, "int16"))
    return node.emit(op.astype(node.emit(op.add(wide, like(128, wide))), "uint8"))


def _before_raising(node: Node, value: Expr) -> Expr | None:
    """Return what was raised by 128 to become these uint8 numbers; None if they were not."""
    bound: Any = node.block.lookup_binding(value) if isinstance(value, relax.Var) else None
    if not is_call(bound, "relax.astype") or not isinstance(bound.args[0], relax.Var):
        return None
    raised = node.block.lookup_binding(bound.args[0])
    if not is_call(raised, "relax.add"):
        return None
    added = constant_array(raised.args[1])
    return raised.args[0] if added is not None and added.shape == () and added == 128 else None


def quantised_by_range(node: Node, value: Expr) -> Quantised:
    """Quantise to the 256 steps between the smallest and the largest number, and zero."""
    if 0 in shape_of(value):
        nothing = np.zeros(shape_of(value), "int8"), np.array(-128, "int32"), np.ones((), "float32")
        return Quantised(*(as_expr(part) for part in nothing))
    made = node.emit(node.block.call_te(_by_range, value, primfunc_name_hint="quantise_by_range"))
    stored, zero, scale = (node.emit(relax.TupleGetItem(made, place)) for place in range(3))
    return Quantised(stored, zero, scale)


def _by_range(value: Any) -> list[Any]:
    """Compute int8 numbers, their zero point and their scale. One kernel, not ten: recurrent layers
    quantise a short state in every step."""
    lowest, highest = (_extreme(value, reduce) for reduce in (te.min, te.max))
    none = tirx.const(0.0, "float32")

    def low() -> Any:
        return te.min(lowest(), none)

    def step() -> Any:
        span = te.max(highest(), none) - low()
        return tirx.Select(span == none, tirx.const(1.0, "float32"), span / 255.0)

    scale = te.compute((), step, name="scale")
    place = te.compute((), lambda: tirx.round(-low() / scale()), name="place")

    def zero() -> Any:
        return _within(place(), 0, 255).astype("int32") - 128

    whole = te.compute((), zero, name="zero")

    def stored(*index: Any) -> Any:
        raised = tirx.round(value[index] / scale()) + whole().astype("float32")
        return _within(raised, -128, 127).astype("int8")

    return [te.compute(value.shape, stored, name="stored"), whole, scale]


def _extreme(value: Any, reduce: Callable[..., Any]) -> Any:
    """Reduce to one number, in two steps: the first compares whole vectors, whatever the shape."""
    shape = [int(extent) for extent in value.shape]
    size = math.prod(shape)
    width = largest_divisor(size, _WIDTH)
    step = te.reduce_axis((0, size // width), "step")
    lane = te.reduce_axis((0, width), "lane")

    def part(column: Any) -> Any:
        place, index = step * width + column, []
        for extent in reversed(shape):
            index.append(tirx.floormod(place, extent))
            place = tirx.floordiv(place, extent)
        return reduce(value[tuple(reversed(index))], axis=step)

    parts = te.compute((width,), part, name="parts")
    return te.compute((), lambda: reduce(parts[lane], axis=lane), name="extreme")


def _within(value: Any, low: int, high: int) -> Any:
    return te.max(
        te.min(value, tirx.const(float(high), "float32")), tirx.const(float(low), "float32")
    )


def _dynamic_quantize_linear(node: Node) -> Outputs:
    made = quantised_by_range(node, node.expr(0))
    zero = op.astype(node.emit(op.add(made.zero, like(128, made.zero))), "uint8")
    return [_unsigned(node, made.stored), made.scale, zero]


def weight_of(stored: np.ndarray, zero: np.ndarray | None, scale: Tensor | None = None) -> Weight:
    """Return a known matrix as int8; unsigned ones are stored 128 lower."""
    lower = 128 if stored.dtype == np.uint8 else 0
    point = np.asarray(0 if zero is None else zero, "int32") - np.int32(lower)
    factor = None if scale is None else as_expr(scale.reshape(-1) if is_known(scale) else scale)
    if point.size == 1:
        point = point.reshape(())
    return Weight((stored.astype("int16") - lower).astype("int8"), point, factor)


def integer_product(node: Node, value: Quantised, weight: Weight) -> Expr:
    """Multiply exactly: the sums of (stored - zero) times (stored - zero)."""
    depth = weight.stored.shape[0]
    sums = node.emit(op.matmul(value.stored, as_expr(weight.stored), out_dtype="int32"))
    columns = weight.stored.sum(axis=0, dtype="int32") - depth * weight.zero
    share = node.emit(op.multiply(value.zero, as_expr(columns.astype("int32"))))
    sums = node.emit(op.subtract(sums, share))
    if not weight.zero.any():
        return sums
    rows = op.sum(op.astype(value.stored, "int32"), axis=[-1], keepdims=True)
    return node.emit(op.subtract(sums, op.multiply(node.emit(rows), as_expr(weight.zero))))


def dynamic_product(node: Node, value: Expr, weight: Weight) -> Expr:
    """Multiply floats by a quantised matrix, in integers."""
    made = quantised_by_range(node, value)
    sums = node.emit(op.astype(integer_product(node, made, weight), "float32"))
    return node.emit(op.multiply(sums, node.emit(op.multiply(made.scale, weight.scale))))


def _stored(node: Node, position: int, zero: int) -> Quantised:
    """Return an input with its zero point."""
    value = node.expr(position)
    lower = np.array(128 if dtype_of(value) == "uint8" else 0, "int32")
    if not node.has(zero):
        return Quantised(signed(node, value), as_expr(-lower))
    made = _before_raising(node, node.expr(zero))
    if made is not None and lower and dtype_of(made) == "int32":
        return Quantised(signed(node, value), made)
    point = node.emit(op.astype(node.expr(zero), "int32"))
    given, rank = shape_of(point), len(shape_of(value))
    shape = () if given in ((), (1,)) else given if len(given) == rank else (*given, 1)
    lowered = op.subtract(node.emit(reshape(point, shape)), as_expr(lower))
    return Quantised(signed(node, value), node.emit(lowered))


def _known_weight(node: Node, position: int, zero: int, scale: int | None = None) -> Weight | None:
    """Return a matrix that is known with its zero point, and has one for each column at most."""
    stored, point = node.value(position), node.value(zero)
    known = is_known(stored) and (point is None or is_known(point))
    if not known or stored.ndim != 2 or str(stored.dtype) not in ("int8", "uint8"):
        return None
    if point is not None and point.size not in (1, stored.shape[1]):
        return None
    return weight_of(
        stored,
        None if point is None else point.reshape(-1),
        None if scale is None else node.value(scale),
    )


def whole_product(node: Node, left: tuple[int, int], right: tuple[int, int]) -> Expr:
    """Multiply two inputs, each given by its place and its zero point's."""
    weight = _known_weight(node, *right)
    if weight is not None and len(node.shape(left[0])) >= 2:
        return integer_product(node, _stored(node, *left), weight)
    rows = without_zero_point(node, *left, -2)
    columns = without_zero_point(node, *right, -1)
    return node.emit(op.matmul(rows, columns, out_dtype="int32"))


def _matmul_integer(node: Node) -> Outputs:
    return whole_product(node, (0, 2), (1, 3))


def _matmul_integer_to_float(node: Node) -> Outputs:
    sums = node.emit(op.astype(whole_product(node, (0, 4), (1, 5)), "float32"))
    scale = node.emit(op.multiply(factor_of(node, 2), factor_of(node, 3)))
    return with_bias(node, node.emit(op.multiply(sums, scale)), 6)


def factor_of(node: Node, position: int) -> Expr:
    """Return a scale as a scalar, or as a row of one for each column."""
    value = node.expr(position)
    return node.emit(reshape(value, ())) if shape_of(value) == (1,) else value


def with_bias(node: Node, value: Expr, position: int) -> Expr:
    return node.emit(op.add(value, node.expr(position))) if node.has(position) else value


def _dynamic_quantize_matmul(node: Node) -> Outputs:
    weight = _known_weight(node, 1, 3, scale=2)
    if weight is not None and len(node.shape(0)) >= 2:
        return with_bias(node, dynamic_product(node, node.expr(0), weight), 4)
    made = quantised_by_range(node, node.expr(0))
    left = op.subtract(op.astype(made.stored, "int32"), made.zero)
    right = without_zero_point(node, 1, 3, -1)
    sums = node.emit(op.matmul(node.emit(left), right, out_dtype="int32"))
    scale = node.emit(op.multiply(made.scale, factor_of(node, 2)))
    real = node.emit(op.multiply(op.astype(sums, "float32"), scale))
    return with_bias(node, real, 4)


def _conv_integer(node: Node) -> Outputs:
    """Convolve int8 by known int8; the padding is the zero point, which may be computed."""
    kernel = _known_kernel(node)
    if kernel is None or kernel.ndim > 4:
        value = without_zero_point(node, 0, 2, None)
        return convolve(node, value, without_zero_point(node, 1, 3, 0))
    given, rank = _stored(node, 0, 2), kernel.ndim - 2
    strides, dilations = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    pads = pads_of(node, node.shape(0)[2:], kernel.shape[2:], strides, dilations)
    image, line = _padded(node, given, pads), (1,) * (2 - rank)
    if rank == 1:
        image, kernel = node.emit(op.expand_dims(image, 2)), kernel[:, :, None]
    sums = node.emit(
        op.nn.conv2d(
            image,
            as_expr(kernel),
            strides=(*line, *strides),
            dilation=(*line, *dilations),
            groups=node.get("group", 1),
            out_dtype="int32",
        )
    )
    columns = kernel.sum(axis=(1, 2, 3), dtype="int32").reshape(-1, 1, 1)
    sums = node.emit(op.subtract(sums, node.emit(op.multiply(given.zero, as_expr(columns)))))
    return op.squeeze(sums, [2]) if rank == 1 else sums


def _known_kernel(node: Node) -> np.ndarray | None:
    """Return a known kernel as int8 around zero."""
    kernel, point = node.value(1), node.value(3)
    if not is_known(kernel) or not (point is None or is_known(point)):
        return None
    lower = 128 if kernel.dtype == np.uint8 else 0
    around = np.zeros(()) if point is None else point.astype("int32") - lower
    if point is None and lower:
        return None
    return None if around.any() else (kernel.astype("int16") - lower).astype("int8")


def _padded(node: Node, given: Quantised, pads: Sequence[int]) -> Expr:
    """Put the zero point around an image."""
    rank = len(pads) // 2
    if not any(pads):
        return given.stored
    edges = [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))]
    widths = [width for edge in edges for width in edge]
    padded = node.emit(op.nn.pad(given.stored, widths, pad_value=0))
    inside = np.pad(np.ones((1, 1, *shape_of(given.stored)[2:]), bool), edges)
    around = node.emit(op.astype(given.zero, "int8"))
    return node.emit(op.where(as_expr(inside), padded, around))


INTEGER: Converters = {
    "ConvInteger": _conv_integer,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "MatMulInteger": _matmul_integer,
}
MICROSOFT_INTEGER: Converters = {
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
}
