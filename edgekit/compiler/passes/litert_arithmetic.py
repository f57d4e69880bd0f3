"""Compute the rest of a quantised TFLite model in integers, exactly as LiteRT does.

A TFLite model arrives as dequantize, float operator, quantize, the form in which backends look for
operators that they support. The rest would be computed in float: four times the memory, and values
that drift away from those of the model's authors. This pass turns it into integer operators and
LiteRT's own rounding. Models of other formats have float semantics and are left alone: the TFLite
frontend marks its modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from edgekit.base.arrays import Array
from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.passes.fixed_point import (
    ADD_LEFT_SHIFT,
    Multiply,
    divided,
    elementwise,
    fixed_point,
    is_small,
    multiply,
    multiply_by,
    multiply_rounding_once,
    round_half_away,
    saturate,
)
from edgekit.compiler.passes.litert_elements import (
    comparing,
    function_of,
    is_comparison,
    resized,
    single_ratio,
    squared_difference,
    taps,
)
from edgekit.compiler.rewriting import is_call, resolved, rewriting

ARITHMETIC = "edgekit.arithmetic"
"""The module attribute that says what quantised numbers mean."""
LITERT = "litert"


@dataclass(frozen=True)
class _Step:
    """The result of a quantize call: real = scale * (stored - zero_point), kept in [low, high]."""

    scale: float
    zero_point: int
    dtype: str
    low: int
    high: int

    def stored(self, distance: Any) -> Any:
        """Store a value that is so far from the zero point."""
        return saturate(distance + self.zero_point, self.low, self.high, self.dtype)


@dataclass(frozen=True)
class _Stored:
    """A quantised tensor behind a dequantize call."""

    tensor: Any
    scale: float
    zero_point: int

    def distance(self, value: Any) -> Any:
        """Return a stored value's distance from the zero point."""
        return value.astype("int32") - self.zero_point


@dataclass(frozen=True)
class _Weights:
    """Constant weights, their scales (one, or one an output channel); zero points are zero."""

    values: Array
    scales: Array


def litert_arithmetic(by: Multiply = multiply) -> Any:
    """Return the pass, which rewrites modules that the TFLite frontend marked.

    `by` is how a kernel multiplies an int32 by a fixed-point number.
    """
    return rewriting(
        "LiteRtArithmetic",
        lambda module: _Rewriter(module, by),
        unless=lambda module: not is_litert(module),
    )


def is_litert(module: Any) -> bool:
    return (module.attrs or {}).get(ARITHMETIC) == LITERT


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, by: Multiply) -> None:
        super().__init__(module)
        self._by = by
        self._values: dict[Any, Any] = {}

    def visit_function_(self, function: Any) -> Any:
        self._values = relax.analysis.get_var2val(function)
        return super().visit_function_(function)

    def visit_call_(self, call: Any) -> Any:
        if is_call(call, "relax.quantize"):
            step = _step(call)
            if step is not None:
                return self._quantized(self._value(call.args[0]), step, call)
        compared = self._comparison(call)
        return self.visit_expr_post_order(call) if compared is None else compared

    def _quantized(self, value: Any, step: _Step, call: Any) -> Any:
        """Return the stored form of `value`, in integers where LiteRT uses them."""
        inner, bounded = self._activation(value, step)
        for attempt in (
            *(self._layer, self._sum, self._product),
            *(self._mean, self._function, self._resized),
        ):
            result = attempt(inner, bounded)
            if result is not None:
                return result
        rescaled = self._rescaled(inner, bounded, single=inner is not value)
        if rescaled is not None:
            return rescaled
        return self._rounded(self.visit_expr(call.args[0]), step)

    def _activation(self, value: Any, step: _Step) -> tuple[Any, _Step]:
        """Narrow the range of stored values by a fused activation."""
        if is_call(value, "relax.nn.relu"):
            low, high = 0.0, None
        elif is_call(value, "relax.clip"):
            low, high = float(value.args[1].value), float(value.args[2].value)
        else:
            return value, step
        lowest = max(step.low, _stored_value(low, step))
        highest = step.high if high is None else min(step.high, _stored_value(high, step))
        narrowed = _Step(step.scale, step.zero_point, step.dtype, lowest, highest)
        return self._value(value.args[0]), narrowed

    def _layer(self, value: Any, step: _Step) -> Any | None:
        """Return a convolution or matrix product, with or without a bias."""
        bias: Array | None = None
        if is_call(value, "relax.add"):
            bias = self._bias(value.args[1])
            if bias is None:
                return None
            value = self._value(value.args[0])
        is_convolution = is_call(value, "relax.nn.conv2d")
        if not is_convolution and not is_call(value, "relax.matmul"):
            return None
        source, weights = self._stored(value.args[0]), self._weights(value.args[1])
        if source is None or weights is None or not _is_int8(source.tensor):
            return None
        axis = str(value.attrs.kernel_layout).index("O") if is_convolution else 1
        channels = _output_channels(value)
        sums = _sums_per_output(weights.values, axis, channels)
        offset = -source.zero_point * sums + (0 if bias is None else bias)
        data = self.visit_expr(source.tensor)
        if is_convolution:
            accumulated = self._convolution(value, data, weights.values, source.zero_point)
        else:
            accumulated = relax.op.matmul(data, relax.const(weights.values), out_dtype="int32")
        factors = source.scale * weights.scales.astype("float64") / step.scale
        return self._requantized(
            accumulated,
            offset,
            np.broadcast_to(factors, channels),
            step,
            once=not is_convolution,
        )

    def _convolution(self, call: Any, data: Any, kernel: Array, zero_point: int) -> Any:
        attributes = call.attrs
        layout = str(attributes.kernel_layout)
        if int(attributes.groups) == 1 and layout == "HWIO":  # Adjacent values are summed.
            kernel, layout = np.ascontiguousarray(kernel.transpose(3, 0, 1, 2)), "OHWI"
        top, left, bottom, right = (int(extent) for extent in attributes.padding)
        if zero_point and (top or left or bottom or right):
            widths = [0, 0, top, bottom, left, right, 0, 0]
            data = self.builder_.emit(relax.op.nn.pad(data, widths, pad_value=zero_point))
            top = left = bottom = right = 0
        return relax.op.nn.conv2d(
            data,
            as_constant(kernel),
            strides=list(attributes.strides),
            padding=[top, left, bottom, right],
            dilation=list(attributes.dilation),
            groups=int(attributes.groups),
            data_layout=attributes.data_layout,
            kernel_layout=layout,
            out_dtype="int32",
        )

    def _requantized(
        self, sums: Any, offset: Array, factors: Array, step: _Step, *, once: bool
    ) -> Any:
        """Store int32 sums plus an offset, times a factor per channel."""
        parts = np.array([fixed_point(float(factor)).parts for factor in factors])
        small = is_small(int(parts[:, 0].max()))
        scale: Callable[..., Any] = self._by if small else multiply
        scale = multiply_rounding_once if once else scale
        first = "int32" if small else "int64"
        types = (first, "int64") if once else (first, "int32", "int32", "int32")

        def requantize(sums: te.Tensor, offsets: te.Tensor, *constants: te.Tensor) -> te.Tensor:
            def element(value: Any, index: Any) -> Any:
                channel = index[-1]
                scaled = scale(
                    value + offsets[channel], *(constant[channel] for constant in constants)
                )
                return step.stored(scaled)

            return elementwise(sums, element)

        constants = [parts[:, column].astype(dtype) for column, dtype in enumerate(types)]
        return self.builder_.call_te(
            requantize,
            self.builder_.emit(sums),
            *(as_constant(constant) for constant in (offset.astype("int32"), *constants)),
            primfunc_name_hint="requantize",
        )

    def _sum(self, value: Any, step: _Step) -> Any | None:
        """Add or subtract two quantised tensors, broadcast or not."""
        negate = is_call(value, "relax.subtract")
        operands = self._two(value) if negate or is_call(value, "relax.add") else None
        if operands is None:
            return None
        left, right = operands
        common = 2.0 * max(left.scale, right.scale)
        first, second = fixed_point(left.scale / common), fixed_point(right.scale / common)
        total = fixed_point(common / (2.0**ADD_LEFT_SHIFT * step.scale))

        def element(a: Any, b: Any) -> Any:
            x = multiply_by(left.distance(a) * (1 << ADD_LEFT_SHIFT), first, self._by)
            y = multiply_by(right.distance(b) * (1 << ADD_LEFT_SHIFT), second, self._by)
            return step.stored(multiply_by(x - y if negate else x + y, total, self._by))

        return self._of_two(value, element, operands, "quantized_add")

    def _product(self, value: Any, step: _Step) -> Any | None:
        if not is_call(value, "relax.multiply"):
            return None
        if value.args[0].same_as(value.args[1]) and is_call(
            difference := self._value(value.args[0]), "relax.subtract"
        ):
            return self._squared(difference, step)
        operands = self._two(value)
        if operands is None:
            return None
        left, right = operands
        factor = fixed_point(left.scale * right.scale / step.scale)

        def element(a: Any, b: Any) -> Any:
            return step.stored(multiply_by(left.distance(a) * right.distance(b), factor, self._by))

        return self._of_two(value, element, operands, "quantized_multiply")

    def _squared(self, difference: Any, step: _Step) -> Any | None:
        operands = self._two(difference)
        if operands is None:
            return None
        left, right = operands
        scales = left.scale, right.scale, step.scale

        def element(a: Any, b: Any) -> Any:
            x, y = left.distance(a), right.distance(b)
            return step.stored(squared_difference(x, y, scales, self._by))

        return self._of_two(difference, element, operands, "quantized_squared_difference")

    def _comparison(self, call: Any) -> Any | None:
        operands = self._two(call, ("int8", "uint8")) if is_comparison(call) else None
        if operands is None:
            return None
        steps = [(operand.scale, operand.zero_point) for operand in operands]
        element = comparing(call, steps, self._by)
        return self._of_two(call, element, operands, "quantized_comparison")

    def _two(
        self, call: Any, dtypes: tuple[str, ...] = ("int8",)
    ) -> tuple[_Stored, _Stored] | None:
        """Return the stored operands of a call; None where they are not of these types."""
        left, right = self._stored(call.args[0]), self._stored(call.args[1])
        if left is None or right is None:
            return None
        fits = all(str(operand.tensor.ty.dtype) in dtypes for operand in (left, right))
        return (left, right) if fits else None

    def _of_two(self, call: Any, element: Any, operands: tuple[_Stored, _Stored], name: str) -> Any:
        """Compute each element of a call from its stored operands."""
        return self.builder_.call_te(
            lambda one, other: _broadcast(one, other, call, element),
            *(self.visit_expr(operand.tensor) for operand in operands),
            primfunc_name_hint=name,
        )

    def _of_one(self, data: Any, element: Callable[[Any], Any], name: str) -> Any:
        return self.builder_.call_te(
            lambda tensor: elementwise(tensor, lambda value, index: element(value)),
            data,
            primfunc_name_hint=name,
        )

    def _mean(self, value: Any, step: _Step) -> Any | None:
        """Sum over any axes, times a factor that also divides by their extents."""
        if not is_call(value, "relax.mean"):
            return None
        source = self._stored(value.args[0])
        if source is None or str(source.tensor.ty.dtype) not in ("int8", "uint8"):
            return None
        offset = source.zero_point * (count := _elements(source.tensor) // _elements(value))
        factor = divided(fixed_point(source.scale / step.scale), count)
        wide = self.builder_.emit(relax.op.astype(self.visit_expr(source.tensor), "int32"))
        total = self.builder_.emit(relax.op.sum(wide, value.attrs.axis, value.attrs.keepdims))
        return self._of_one(
            total,
            lambda sums: step.stored(multiply_by(sums - offset, factor, self._by)),
            "quantized_mean",
        )

    def _function(self, value: Any, step: _Step) -> Any | None:
        """Apply a function to each element."""
        function = function_of(value) if isinstance(value, relax.Call) else None
        source = None if function is None else self._stored(value.args[0])
        if function is None or source is None or not _is_int8(source.tensor):
            return None
        return self._of_one(
            self.visit_expr(source.tensor),
            lambda stored: step.stored(
                function(source.distance(stored), source.scale, step.scale, self._by)
            ),
            "quantized_function",
        )

    def _resized(self, value: Any, step: _Step) -> Any | None:
        """Interpolate between pixels, where both sides have the same quantisation."""
        if not is_call(value, "relax.image.resize2d") or str(value.attrs.method) != "linear":
            return None
        source = self._stored(value.args[0])
        if source is None or not _is_int8(source.tensor) or str(value.attrs.layout) != "NHWC":
            return None
        if (source.scale, source.zero_point) != (step.scale, step.zero_point):
            return None
        mode = str(value.attrs.coordinate_transformation_mode)
        given, wanted = (list(map(int, each.ty.shape)) for each in (source.tensor, value))
        rows, columns = (as_constant(taps(given[k], wanted[k], mode)) for k in (1, 2))
        return self.builder_.call_te(
            resized,
            self.visit_expr(source.tensor),
            rows,
            columns,
            primfunc_name_hint="quantized_resize",
        )

    def _rescaled(self, value: Any, step: _Step, *, single: bool) -> Any | None:
        """Convert one quantisation to another; after ReLU and its kin with a factor of `single`
        precision."""
        source = self._stored(value)
        if source is None or not _is_int8(source.tensor):
            return None
        ratio = single_ratio(source.scale, step.scale)
        factor = ratio if single else fixed_point(source.scale / step.scale)
        return self._of_one(
            self.visit_expr(source.tensor),
            lambda stored: step.stored(multiply_by(source.distance(stored), factor, self._by)),
            "rescale",
        )

    def _rounded(self, data: Any, step: _Step) -> Any:
        """Quantise a float: LiteRT rounds ties away from zero, relax.quantize to even on x86."""

        def element(real: Any) -> Any:
            stored = round_half_away(real / tvm.tirx.const(step.scale, "float32"))
            offset = tvm.tirx.const(float(step.zero_point), "float32")
            return saturate(stored + offset, step.low, step.high, step.dtype, "float32")

        return self._of_one(data, element, "quantize")

    def _value(self, expression: Any) -> Any:
        return resolved(expression, self._values)

    def _stored(self, expression: Any) -> _Stored | None:
        value = self._value(expression)
        if not is_call(value, "relax.dequantize"):
            return None
        scale, zero_point = constant_array(value.args[1]), constant_array(value.args[2])
        if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
            return None
        return _Stored(value.args[0], float(scale.item()), int(zero_point.item()))

    def _weights(self, expression: Any) -> _Weights | None:
        value = self._value(expression)
        shape = None
        if is_call(value, "relax.reshape"):
            shape = [int(extent) for extent in value.ty.shape]
            value = self._value(value.args[0])
        if not is_call(value, "relax.dequantize"):
            return None
        stored, scales, zero_points = (
            constant_array(self._value(argument)) for argument in value.args
        )
        if stored is None or scales is None or zero_points is None:
            return None
        if stored.dtype != np.int8 or zero_points.any():
            return None
        return _Weights(stored if shape is None else stored.reshape(shape), scales.reshape(-1))

    def _bias(self, expression: Any) -> Array | None:
        value = self._value(expression)
        if not is_call(value, "relax.dequantize"):
            return None
        stored = constant_array(self._value(value.args[0]))
        return stored if stored is not None and stored.dtype == np.int32 else None


def _is_int8(expression: Any) -> bool:
    return str(expression.ty.dtype) == "int8"


def _step(call: Any) -> _Step | None:
    scale, zero_point = constant_array(call.args[1]), constant_array(call.args[2])
    dtype = str(call.attrs.out_dtype)
    if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
        return None
    if dtype not in ("int8", "uint8", "int16"):
        return None
    limits = np.iinfo(dtype)
    return _Step(float(scale.item()), int(zero_point.item()), dtype, limits.min, limits.max)


def _elements(expression: Any) -> int:
    return math.prod(int(extent) for extent in expression.ty.shape)


def _stored_value(real: float, step: _Step) -> int:
    return step.zero_point + int(np.floor(abs(real) / step.scale + 0.5) * np.sign(real))


def _output_channels(call: Any) -> int:
    return int(call.ty.shape[-1])


def _sums_per_output(weights: Array, axis: int, channels: int) -> Array:
    others = tuple(place for place in range(weights.ndim) if place != axis)
    return np.broadcast_to(weights.sum(axis=others, dtype="int32"), channels)


def _broadcast(one: te.Tensor, other: te.Tensor, call: Any, element: Any) -> te.Tensor:
    """Compute element-wise over the call's shape, each operand broadcast to it."""
    shape = [int(extent) for extent in call.ty.shape]

    def operand(tensor: te.Tensor, index: Any) -> Any:
        own = [int(extent) for extent in tensor.shape]
        tail = index[len(shape) - len(own) :]
        return tensor(*(0 if extent == 1 else i for extent, i in zip(own, tail, strict=True)))

    return te.compute(shape, lambda *i: element(operand(one, i), operand(other, i)), name="litert")
