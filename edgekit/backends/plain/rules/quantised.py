"""Convolutions and dense layers of quantised models: dequantize, layer, bias, activation, quantize.

A match is described in integers, so that a library with integer arithmetic can run it without the
floats in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.relax.dpl import is_const, is_op, wildcard

from edgekit.backends.base import Layer, Refused, Rule
from edgekit.backends.match import Match
from edgekit.backends.rule_tools import OUT, integers, number, scalar
from edgekit.base.arrays import Array

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
_CLOSE = 1e-4
"""The tolerance between a product of two float32 scales and a converter's stored product."""


@dataclass(frozen=True)
class Quantisation:
    """The quantisation real = scale * (stored - zero_point)."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer with inputs and results stored as int8 or uint8."""

    dtype: str
    source: Quantisation
    result: Quantisation
    low: int
    """The lowest value that may be stored; a ReLU is such a bound."""
    high: int
    weight: Array
    """The int8 weights: outputs by inputs, and for a convolution by rows by columns."""
    scales: Array
    """The scales of the weights, one per output channel; their zero points are zero."""
    bias: Array
    """The int32 bias, in steps of source.scale * scales."""

    @property
    def is_bounded(self) -> bool:
        return (self.low, self.high) != LIMITS[self.dtype]


@dataclass(frozen=True)
class ConvolutionWindow:
    """The window of a convolution, rows before columns."""

    channels_last: bool
    """Whether channels are last, as in TFLite; otherwise they are first, as in ONNX."""
    groups: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]

    def channels_of(self, shape: Sequence[int]) -> int:
        return shape[3 if self.channels_last else 1]


Take = Callable[[Match, QuantisedLayer, "ConvolutionWindow | None"], Layer]
"""The function that makes a library's layer; a dense layer has no window."""


def quantised_rules(take: Take) -> tuple[Rule, ...]:
    return tuple(
        _rule(operator, name, activation, take)
        for operator, name in (("nn.conv2d", "conv2d"), ("matmul", "dense"))
        for activation in ("nn.relu", "clip", "")
    )


def _rule(operator: str, name: str, activation: str, take: Take) -> Rule:
    stored, weight, bias = wildcard(), is_const(), is_const()
    source = is_op("relax.dequantize")(stored, is_const(), is_const())
    plain = is_op("relax.dequantize")(weight, is_const(), is_const())
    shaped = is_op("relax.reshape")(plain, wildcard())
    turned = is_op("relax.permute_dims")(plain)
    weights: Any = shaped | turned | plain
    call = is_op(f"relax.{operator}")(source, weights)
    offset = is_op("relax.dequantize")(bias, is_const(), is_const())
    aligned = is_op("relax.reshape")(offset, wildcard())
    value: Any = is_op("relax.add")(call, aligned | offset) | call
    parts: dict[str, Any] = {"input": stored, "source": source, "call": call, "bias": bias}
    parts |= {"weight": weight, "plain": plain, "shaped": shaped, "turned": turned}
    parts |= {"offset": offset, "aligned": aligned}
    if activation:
        bounds = (wildcard(), wildcard()) if activation == "clip" else ()
        value = is_op(f"relax.{activation}")(value, *bounds)
        parts["activation"] = value
    result = is_op("relax.quantize")(value, is_const(), is_const())

    def take_all(match: Match) -> Layer:
        if match.dtype("input") not in LIMITS:
            raise Refused(f"it reads {match.dtype('input')}, and the library int8 or uint8")
        if match.dtype(OUT) != match.dtype("input"):
            raise Refused(f"it makes {match.dtype(OUT)} of {match.dtype('input')}")
        window = None if name == "dense" else _window(match)
        return take(match, _described(match, window), window)

    return Rule(f"int8 {name}", result, {**parts, OUT: result}, take_all)


def _described(match: Match, window: ConvolutionWindow | None) -> QuantisedLayer:
    source, result = _quantisation(match, "source"), _quantisation(match, OUT)
    weight, scales = _weights(match, window)
    channels = weight.shape[0]
    bias = np.zeros(channels, "int32")
    if match.has("bias"):
        bias = _bias(match, channels, source.scale * scales, window)
    dtype = match.dtype(OUT)
    low, high = LIMITS[dtype]
    if match.has("activation"):
        arguments = match.arguments("activation")
        bounds = [number(bound) for bound in arguments[1:]] or [0.0, float("inf")]
        low = max(low, _stored(bounds[0], result))
        high = high if bounds[1] == float("inf") else min(high, _stored(bounds[1], result))
    return QuantisedLayer(dtype, source, result, low, high, weight, scales, bias)


def _bias(match: Match, channels: int, steps: Array, window: ConvolutionWindow | None) -> Array:
    bias = match.weights("bias")
    if bias.dtype != np.int32 or bias.shape != (channels,):
        raise Refused("its bias is not one int32 a channel")
    _, scale, zero_point = match.arguments("offset")
    scales = match.with_part("scale", scale).weights("scale").reshape(-1)
    if match.with_part("zero", zero_point).weights("zero").any():
        raise Refused("its bias has a zero point")
    if scales.size not in (1, channels) or not np.allclose(scales, steps, rtol=_CLOSE, atol=0):
        raise Refused("its bias is not in steps of its input's and its weights'")
    last = window is None or window.channels_last
    place = 0 if last else 2
    if match.has("aligned"):
        shape = match.shape("aligned")
        if shape != (1,) * (len(shape) - 1 - place) + (channels,) + (1,) * place:
            raise Refused("its bias does not lie along the channels")
    elif not last:
        raise Refused("its bias does not lie along the channels")
    return bias


def _quantisation(match: Match, part: str) -> Quantisation:
    _, scale, zero_point = match.arguments(part)
    values = [_one(match, argument) for argument in (scale, zero_point)]
    return Quantisation(values[0], int(values[1]))


def _one(match: Match, expression: Any) -> float:
    return scalar(match.with_part("its scale", expression), "its scale")


def _weights(match: Match, window: ConvolutionWindow | None) -> tuple[Array, Array]:
    """Return the weights with outputs first, and one scale for each output."""
    stored = match.weights("weight")
    _, scale, zero_point = match.arguments("plain")
    scales = match.with_part("scale", scale).weights("scale").reshape(-1)
    zeros = match.with_part("zero", zero_point).weights("zero")
    if stored.dtype != np.int8 or zeros.any():
        raise Refused("its weights are no symmetric int8")
    axis = int(match.attrs("plain").axis) % stored.ndim
    if match.has("shaped"):
        stored = stored.reshape(match.shape("shaped"))
    elif match.has("turned"):
        if stored.ndim != 2:
            raise Refused(f"its weights have {stored.ndim} axes")
        stored, axis = stored.T, 1 - axis
    if window is None:
        if stored.ndim != 2:
            raise Refused(f"its weights have {stored.ndim} axes")
        weight, outputs = stored.T, 1
    else:
        layout = str(match.attrs("call").kernel_layout)
        outputs = layout.index("O")
        weight = stored.transpose([layout.index(axis) for axis in "OIHW"])
        if window.groups > 1 and layout == "HWOI":
            weight = weight.reshape(-1, weight.shape[1], *weight.shape[2:])
    channels = weight.shape[0]
    if scales.size not in (1, channels):
        raise Refused("its weights have not one scale an output channel")
    if scales.size > 1 and (window is None or not window.channels_last) and axis != outputs:
        raise Refused("its weights have not one scale an output channel")
    return np.ascontiguousarray(weight), np.broadcast_to(scales, channels).astype("float64")


def _window(match: Match) -> ConvolutionWindow:
    attrs = match.attrs("call")
    layouts = (str(attrs.data_layout), str(attrs.out_layout) or str(attrs.data_layout))
    if layouts not in (("NHWC", "NHWC"), ("NCHW", "NCHW")) or sorted(
        str(attrs.kernel_layout)
    ) != sorted("OIHW"):
        raise Refused(f"its layout is {attrs.data_layout}, {attrs.kernel_layout}")
    top, left, bottom, right = integers(attrs.padding)
    if min(top, left, bottom, right) < 0:
        raise Refused("its padding is negative")
    strides, dilations = integers(attrs.strides), integers(attrs.dilation)
    return ConvolutionWindow(
        layouts[0] == "NHWC",
        int(attrs.groups),
        (strides[0], strides[1]),
        (dilations[0], dilations[1]),
        (top, left),
        (bottom, right),
    )


def _stored(real: float, quantisation: Quantisation) -> int:
    """Round as LiteRT does: halves away from zero."""
    steps = np.floor(abs(real) / quantisation.scale + 0.5) * np.sign(real)
    return quantisation.zero_point + int(steps)
