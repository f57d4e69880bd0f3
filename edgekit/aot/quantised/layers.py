"""Convolutions and matrix products of quantised models, as integer operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit.aot.arithmetic import fixed_point
from edgekit.aot.operators import (
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Rescale,
    Scales,
    Window,
)
from edgekit.aot.quantised.graph import (
    Graph,
    QuantisedConstant,
    Source,
    Target,
    UnfitError,
    integers,
    is_call,
)
from edgekit.aot.quantised.group import (
    Context,
    Group,
    activation,
    channels_first,
    image_of,
    required,
    window_of,
)
from edgekit.base.arrays import Array
from edgekit.base.tvm_compat import constant_array
from edgekit.compiler.macs import shape_of

_CONVOLUTIONS, _PRODUCT = ("relax.nn.conv1d", "relax.nn.conv2d"), "relax.matmul"
_AROUND = ("relax.add", "relax.clip", "relax.nn.relu", "relax.maximum", "relax.minimum")


def match_layer(context: Context, value: Any, target: Target) -> Group | None:
    """Match a convolution or a matrix product, with or without a bias and an activation."""
    value, target = activation(context, value, target)
    layer, bias = _apart(context.graph, value)
    if layer is None:
        return None
    source = required(context, layer.args[0])
    weights = context.graph.quantised_constant(layer.args[1])
    if weights is None:
        raise UnfitError("its weights are not quantised constants")
    weights = _narrow(weights)
    if is_call(layer, *_CONVOLUTIONS):
        return _convolution(context, layer, bias, source, weights, target)
    return _product(context, layer, bias, source, weights, target)


def _apart(graph: Graph, value: Any) -> tuple[Any, Any]:
    """Return the layer's own call, and the bias that is added to it."""
    if is_call(value, *_CONVOLUTIONS, _PRODUCT):
        return value, None
    if not is_call(value, "relax.add"):
        return None, None
    for layer, bias in (value.args, reversed(value.args)):
        call = graph.value(layer)
        if is_call(call, *_CONVOLUTIONS, _PRODUCT) and graph.real_constant(bias) is not None:
            return call, bias
    return None, None


def main_call(graph: Graph, value: Any) -> Any:
    """Return the convolution or product below bias and activations; else the value."""
    call = value
    while is_call(call, *_AROUND):
        layer, _ = _apart(graph, call)
        call = graph.value(call.args[0]) if layer is None else layer
    return call if is_call(call, *_CONVOLUTIONS, _PRODUCT) else value


def _narrow(weights: QuantisedConstant) -> QuantisedConstant:
    low, high = int(weights.values.min(initial=0)), int(weights.values.max(initial=0))
    if low < -128 or high > 127:
        raise UnfitError("its weights have a zero point and do not fit into 8 bits without it")
    return QuantisedConstant(weights.values.astype("int8"), weights.scales)


def _convolution(
    context: Context,
    call: Any,
    bias: Any,
    source: Source,
    weights: QuantisedConstant,
    target: Target,
) -> Group:
    attrs = call.attrs
    first = channels_first(str(attrs.data_layout), str(attrs.out_layout or ""))
    image, result = image_of(source.shape, first), image_of(shape_of(call), first)
    layout = str(attrs.kernel_layout)
    order = [layout.index(axis) for axis in "HWOI" if axis in layout]
    values, each_scale = weights.values.transpose(order), weights.scales.transpose(order)
    window = window_of(values.shape[:-2], attrs)
    rows, columns = window.kernel
    values = values.reshape(rows, columns, *values.shape[-2:])
    each_scale = each_scale.reshape(values.shape)
    source, window, image = _without_pad(context, source, window, first)
    groups, channels = int(attrs.groups), result.channels
    if groups == 1:
        kernel = values.transpose(2, 0, 1, 3)
        scales = _one_each(each_scale.transpose(2, 0, 1, 3).reshape(channels, -1))
    elif groups == image.channels:
        kernel = values.reshape(rows, columns, channels)
        scales = _one_each(each_scale.reshape(-1, channels).T)
    else:
        raise UnfitError(f"it has {groups} groups of several channels")
    stored = _bias(context.graph, bias, channels, source.scale * scales)
    factors = [source.scale * float(scale) / target.scale for scale in scales]
    rescale = _rescale(factors, target, once=False)
    kernel = np.ascontiguousarray(kernel)
    make = Conv2D if groups == 1 else DepthwiseConv2D
    own = _scales(source, scales, target)
    operator = make(image, result, window, kernel, stored, source.zero_point, rescale, own)
    return Group(operator, (source,), shape_of(call), channels_last=first)


def _without_pad(
    context: Context, source: Source, window: Window, first: bool
) -> tuple[Source, Window, Any]:
    """Merge padding with zeros into the convolution's own padding."""
    pad = context.graph.value(source.tensor)
    image = image_of(source.shape, first)
    if source.moves or len(source.shape) != 4 or not is_call(pad, "relax.nn.pad"):
        return source, window, image
    widths = integers(pad.attrs.pad_width)
    value = int(pad.attrs.pad_value)
    if str(pad.args[0].ty.dtype) == "uint8":
        value -= 128
    height, width = (2, 3) if first else (1, 2)
    others = [axis for axis in range(4) if axis not in (height, width)]
    plain = str(pad.attrs.pad_mode) == "constant" and value == source.zero_point
    if not plain or any(widths[2 * axis] or widths[2 * axis + 1] for axis in others):
        return source, window, image
    top, left, bottom, right = window.padding
    padding = (
        top + widths[2 * height],
        left + widths[2 * width],
        bottom + widths[2 * height + 1],
        right + widths[2 * width + 1],
    )
    inner = Source(
        context.graph.tensor(pad.args[0]),
        (),
        shape_of(pad.args[0]),
        source.scale,
        source.zero_point,
    )
    grown = Window(window.kernel, window.strides, window.dilations, padding)
    return inner, grown, image_of(inner.shape, first)


def _product(
    context: Context,
    call: Any,
    bias: Any,
    source: Source,
    weights: QuantisedConstant,
    target: Target,
) -> Group:
    if weights.values.ndim != 2 or len(source.shape) < 1:
        raise UnfitError("its weights are not one matrix")
    depth, units = weights.values.shape
    rows = math.prod(source.shape) // depth
    scales = _one_each(weights.scales.T)
    factors = [source.scale * float(scale) / target.scale for scale in scales]
    operator = FullyConnected(
        rows,
        np.ascontiguousarray(weights.values.T),
        _bias(context.graph, bias, units, source.scale * scales),
        source.zero_point,
        _rescale(factors, target, once=context.litert),
        _scales(source, scales, target),
    )
    return Group(operator, (source,), shape_of(call))


def _scales(source: Source, weights: Array, target: Target) -> Scales:
    each = tuple(float(scale) for scale in weights)
    return Scales((source.scale,), target.scale, each[:1] if len(set(each)) == 1 else each)


def _one_each(scales: Array) -> Array:
    """Return the one number of each row."""
    if scales.size and (scales != scales[:, :1]).any():
        raise UnfitError("its weights have several scales for one output channel")
    result: Array = scales[:, 0]
    return result


def _bias(graph: Graph, bias: Any, channels: int, steps: Array) -> Array:
    """Return the bias in steps of the input's scale times the weights', one for each channel."""
    if bias is None:
        return np.zeros(channels, "int32")
    value = graph.value(bias)
    while is_call(value, "relax.reshape", "relax.permute_dims", "relax.expand_dims"):
        value = graph.value(value.args[0])
    if is_call(value, "relax.dequantize"):
        stored = constant_array(graph.value(value.args[0]))
        if stored is not None and stored.dtype == np.int32 and stored.size == channels:
            exact = graph.quantised_constant(bias)
            assert exact is not None
            scales = exact.scales.reshape(-1)
            if np.allclose(scales, steps, rtol=1e-4, atol=0):
                result: Array = exact.values.reshape(-1).astype("int32")
                return result
    real = graph.real_constant(bias)
    if real is None or real.size not in (1, channels):
        raise UnfitError("its bias is not one number for each output channel")
    counted = np.rint(np.broadcast_to(real.reshape(-1), channels).astype("float64") / steps)
    if np.abs(counted).max(initial=0) > 2**31 - 1:
        raise UnfitError("its bias does not fit into 32 bits")
    converted: Array = counted.astype("int32")
    return converted


def _rescale(factors: list[float], target: Target, *, once: bool) -> Rescale:
    distinct = factors[:1] if len(set(factors)) == 1 else factors
    return Rescale(
        tuple(fixed_point(factor) for factor in distinct),
        target.zero_point,
        target.low,
        target.high,
        rounds_once=once,
    )
