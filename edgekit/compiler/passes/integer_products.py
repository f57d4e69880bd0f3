"""Compute convolutions and matrix products of dequantised numbers in integers.

A quantised ONNX model says dequantise, multiply, quantise, and means real numbers. The factors are
small integers, though: the sum of their products is exact in int32, and its scale is applied
afterwards. That is closer to the model's meaning than sums of floats, and dot products of integers
are several times as fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgekit.base.arrays import Array
from edgekit.base.tvm_compat import as_constant, constant_array
from edgekit.compiler.macs import shape_of
from edgekit.compiler.passes.channels import TO_FIRST, TO_LAST
from edgekit.compiler.passes.litert_arithmetic import is_litert
from edgekit.compiler.rewriting import is_call, operator_of, rewriting
from edgekit.compiler.schedules.packed_int8 import MOST_EXACT_TAPS


@dataclass(frozen=True)
class _Stored:
    """The integers behind a dequantised tensor: real = scale * (stored - zero_point)."""

    tensor: Any
    scale: float
    zero_point: int


@dataclass(frozen=True)
class _Weights:
    values: Array
    """(…, outputs), int8."""
    scales: Array
    """One scale, or one per output."""


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = operator_of(call)
        if name not in ("relax.nn.conv2d", "relax.matmul") or 0 in shape_of(call):
            return call
        if str(call.ty.dtype) == "int32":
            return self._channels_last(call) if name == "relax.nn.conv2d" else call
        source = self._stored(call.args[0])
        if source is None or str(call.ty.dtype) != "float32":
            return call
        result = (
            self._product(call, source)
            if name == "relax.matmul"
            else self._convolution(call, source)
        )
        return call if result is None else result

    def _convolution(self, call: Any, source: _Stored) -> Any | None:
        attrs = call.attrs
        if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCHW", "OIHW"):
            return None
        weights = self._weights(call.args[1], (2, 3, 1, 0), outputs=0)
        if weights is None:
            return None
        rows, taps, inputs, _ = weights.values.shape
        groups = int(attrs.groups)
        if groups != 1 and (inputs != 1 or rows * taps > MOST_EXACT_TAPS):
            return None
        data = self._emit(relax.op.permute_dims(source.tensor, list(TO_LAST)))
        top, left, bottom, right = (int(edge) for edge in attrs.padding)
        if top or left or bottom or right:
            widths = [0, 0, top, bottom, left, right, 0, 0]
            padded = relax.op.nn.pad(data, widths, pad_value=source.zero_point)
            data = self._emit(padded)
        sums = _convolved(data, weights.values, attrs)
        return relax.op.permute_dims(self._scaled(sums, source, weights), list(TO_FIRST))

    def _channels_last(self, call: Any) -> Any:
        """Convolve int8 by constant int8 where neighbours in memory are channels."""
        attrs, kernel = call.attrs, constant_array(self._value(call.args[1]))
        small = str(call.args[0].ty.dtype) == "int8" and any(attrs.padding) is False
        if kernel is None or kernel.dtype != np.int8 or not small:
            return call
        if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCHW", "OIHW"):
            return call
        groups, (_, inputs, *window) = int(attrs.groups), kernel.shape
        if groups != 1 and (inputs != 1 or math.prod(window) > MOST_EXACT_TAPS):
            return call
        data = self._emit(relax.op.permute_dims(call.args[0], list(TO_LAST)))
        values = np.ascontiguousarray(kernel.transpose(2, 3, 1, 0))
        sums = self._emit(_convolved(data, values, attrs))
        return relax.op.permute_dims(sums, list(TO_FIRST))

    def _product(self, call: Any, source: _Stored) -> Any | None:
        if len(shape_of(call.args[1])) != 2 or len(shape_of(source.tensor)) < 2:
            return None
        weights = self._weights(call.args[1], (0, 1), outputs=1)
        if weights is None:
            return None
        sums = relax.op.matmul(source.tensor, relax.const(weights.values), out_dtype="int32")
        return self._scaled(sums, source, weights)

    def _scaled(self, sums: Any, source: _Stored, weights: _Weights) -> Any:
        """Return the exact sums without the zero point's share, times their scale."""
        others = tuple(range(weights.values.ndim - 1))
        offset = -source.zero_point * weights.values.sum(axis=others, dtype="int32")
        exact = self._emit(relax.op.add(self._emit(sums), as_constant(offset.astype("int32"))))
        scale = np.broadcast_to(source.scale * weights.scales, offset.shape).astype("float32")
        real = self._emit(relax.op.astype(exact, "float32"))
        return self._emit(relax.op.multiply(real, as_constant(scale)))

    def _emit(self, expression: Any) -> Any:
        return self.builder_.emit(expression)

    def _value(self, expression: Any) -> Any:
        while isinstance(expression, relax.Var):
            bound = self.lookup_binding(expression)
            if bound is None:
                break
            expression = bound
        return expression

    def _stored(self, expression: Any) -> _Stored | None:
        value = self._value(expression)
        if not is_call(value, "relax.dequantize"):
            return None
        tensor, *parameters = value.args
        scale, zero_point = (constant_array(self._value(given)) for given in parameters)
        if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
            return None
        scale_is, zero_is, dtype = float(scale.item()), int(zero_point.item()), tensor.ty.dtype
        if str(dtype) == "int8":
            return _Stored(tensor, scale_is, zero_is)
        if str(dtype) != "uint8":
            return None
        wide = self._emit(relax.op.astype(tensor, "int16"))
        lower = self._emit(relax.op.subtract(wide, as_constant(np.int16(128))))
        return _Stored(self._emit(relax.op.astype(lower, "int8")), scale_is, zero_is - 128)

    def _weights(self, expression: Any, order: tuple[int, ...], outputs: int) -> _Weights | None:
        """Return constant weights with their axes in another order; `outputs` is one of the
        axes."""
        value = self._value(expression)
        turned = is_call(value, "relax.permute_dims") and len(shape_of(value)) == 2
        if turned:
            value = self._value(value.args[0])
            order, outputs = order[::-1], 1 - outputs
        if not is_call(value, "relax.dequantize"):
            return None
        stored, scales, zeros = (constant_array(self._value(given)) for given in value.args)
        if stored is None or scales is None or zeros is None:
            return None
        if stored.dtype != np.int8 or zeros.any():
            return None
        if scales.size > 1 and int(value.attrs.axis) % stored.ndim != outputs:
            return None
        kernel = np.ascontiguousarray(stored.transpose(order))
        return _Weights(kernel, scales.reshape(-1).astype("float64"))


def _convolved(data: Any, kernel: Array, attrs: Any) -> Any:
    """Convolve int8 (N, H, W, C) by (KH, KW, C / groups, O), without padding."""
    return relax.op.nn.conv2d(
        data,
        as_constant(kernel),
        strides=list(attrs.strides),
        padding=[0, 0, 0, 0],
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="int32",
    )


def integer_products() -> Any:
    """Return the pass. LiteRT's numbers have a rounding of their own (litert_arithmetic.py)."""
    return rewriting("IntegerProducts", _Rewriter, unless=is_litert)
