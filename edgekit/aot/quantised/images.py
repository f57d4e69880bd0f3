"""Pooling, padding, joining and resizing of quantised tensors, and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit.aot.arithmetic import fixed_point, mean_factor, softmax_factor
from edgekit.aot.operators import (
    AveragePool,
    Image,
    MaxPool,
    Mean,
    Rescale,
    ResizeNearest,
    Scales,
    Softmax,
)
from edgekit.aot.quantised.graph import Source, Target, UnfitError, integers, is_call
from edgekit.aot.quantised.group import (
    Context,
    Group,
    activation,
    channels_first,
    image_of,
    required,
    window_of,
)
from edgekit.aot.quantised.tables import rescaled
from edgekit.compiler.macs import shape_of

MAX_POOLS = ("relax.nn.max_pool1d", "relax.nn.max_pool2d")
_AVERAGE_POOLS = ("relax.nn.avg_pool1d", "relax.nn.avg_pool2d")
_ADAPTIVE_POOLS = ("relax.nn.adaptive_avg_pool1d", "relax.nn.adaptive_avg_pool2d")
_SOFTMAX_TARGET = Target(1 / 256, -128)


def match_pool(context: Context, value: Any, target: Target) -> Group | None:
    value, target = activation(context, value, target)
    if not is_call(value, *MAX_POOLS, *_AVERAGE_POOLS):
        return None
    source = required(context, value.args[0])
    if is_call(value, *_AVERAGE_POOLS):
        return average_pool(context, value, source, target)
    return max_pool(value, source, target, context.litert)


def max_pool(call: Any, source: Source, target: Target, litert: bool) -> Group:
    first = _is_first(call)
    image, result = image_of(source.shape, first), image_of(shape_of(call), first)
    same = source.means_the_same(target)
    low, high = (target.low, target.high) if same else (-128, 127)
    operator = MaxPool(
        image, result, window_of(integers(call.attrs.pool_size), call.attrs), low, high
    )
    then = None if same else rescaled(source, target, result.elements, litert)
    return Group(operator, (source,), shape_of(call), first, then)


def average_pool(context: Context, call: Any, source: Source, target: Target) -> Group:
    first = _is_first(call)
    image, result = image_of(source.shape, first), image_of(shape_of(call), first)
    window = window_of(integers(call.attrs.pool_size), call.attrs)
    if window.dilations != (1, 1):
        raise UnfitError("its window has gaps")
    if bool(call.attrs.count_include_pad) and any(window.padding):
        raise UnfitError("it counts the padding")
    if source.means_the_same(target):
        operator = AveragePool(image, result, window, target.low, target.high)
        return Group(operator, (source,), shape_of(call), first)
    if window.kernel == (image.height, image.width) and not any(window.padding):
        return Group(_mean(image, source, target), (source,), shape_of(call), first)
    plain = AveragePool(image, result, window, -128, 127)
    then = rescaled(source, target, result.elements, context.litert)
    return Group(plain, (source,), shape_of(call), first, then)


def match_mean(context: Context, value: Any, target: Target) -> Group | None:
    """Match a mean over height and width, or over the one axis of a sequence."""
    value, target = activation(context, value, target)
    if is_call(value, *_ADAPTIVE_POOLS):
        if any(extent != 1 for extent in integers(value.attrs.output_size)):
            raise UnfitError("its windows differ in size")
        given = range(2, 4) if _is_first(value) else range(1, 3)
        axes = tuple(axis for axis in given if axis < len(shape_of(value)))
    elif is_call(value, "relax.mean"):
        rank = len(shape_of(value.args[0]))
        over = range(rank) if value.attrs.axis is None else value.attrs.axis
        axes = tuple(sorted(int(axis) % rank for axis in over))
    else:
        return None
    source = required(context, value.args[0])
    shape = source.shape
    axes = tuple(axis for axis in axes if shape[axis] != 1) or axes
    count = math.prod(shape[axis] for axis in axes)
    first = len(shape) in (3, 4) and axes[-1] == len(shape) - 1 and 1 not in axes and shape[1] != 1
    if first:
        image = image_of(shape, channels_first=True)
        if image.height * image.width != count:
            raise UnfitError("it keeps a part of the image")
    else:
        if math.prod(shape[: axes[0]]) != 1 or axes[-1] - axes[0] != len(axes) - 1:
            raise UnfitError("it is over other axes than height and width")
        image = Image(count, 1, math.prod(shape) // count)
    return Group(_mean(image, source, target), (source,), shape_of(value), first)


def _mean(image: Image, source: Source, target: Target) -> Mean:
    factor = mean_factor(fixed_point(source.scale / target.scale), image.height * image.width)
    rescale = Rescale((factor,), target.zero_point, target.low, target.high)
    return Mean(image, source.zero_point, rescale, Scales((source.scale,), target.scale))


def match_softmax(context: Context, value: Any, target: Target) -> Group | None:
    graph = context.graph
    if not is_call(value, "relax.nn.softmax"):
        return None
    inner, beta = graph.value(value.args[0]), 1.0
    data = value.args[0]
    if is_call(inner, "relax.multiply"):
        factor = graph.number(inner.args[1])
        if factor is not None and factor > 0:
            data, beta = inner.args[0], factor
    source = required(context, data)
    shape = shape_of(value)
    axis = int(value.attrs.axis) % len(shape)
    last = context.is_last(source)
    if axis != (1 if last else len(shape) - 1):
        raise UnfitError("it is not over the last axis")
    columns = shape[axis]
    rows = math.prod(shape) // columns
    factor_, least = softmax_factor(source.scale, beta)
    operator = Softmax(rows, columns, factor_, least)
    then = None
    if (target.scale, target.zero_point) != (_SOFTMAX_TARGET.scale, _SOFTMAX_TARGET.zero_point):
        made = Source(source.tensor, (), shape, _SOFTMAX_TARGET.scale, _SOFTMAX_TARGET.zero_point)
        then = rescaled(made, target, rows * columns, context.litert)
    return Group(operator, (source,), shape, last, then)


def resize_nearest(call: Any, source: Source, target: Target, litert: bool) -> Group:
    attrs = call.attrs
    if str(attrs.method) != "nearest_neighbor":
        raise UnfitError(f"it interpolates ({attrs.method})")
    if str(attrs.layout) not in ("NHWC", "NCHW"):
        raise UnfitError(f"its images lie as {attrs.layout}")
    first = str(attrs.layout) == "NCHW"
    image, result = image_of(source.shape, first), image_of(shape_of(call), first)
    mode, rounding = str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
    operator = ResizeNearest(
        image,
        result,
        _places(image.height, result.height, mode, rounding),
        _places(image.width, result.width, mode, rounding),
    )
    then = (
        None if source.means_the_same(target) else rescaled(source, target, result.elements, litert)
    )
    return Group(operator, (source,), shape_of(call), first, then)


def match_resize(context: Context, value: Any, target: Target) -> Group | None:
    if not is_call(value, "relax.image.resize2d"):
        return None
    return resize_nearest(value, required(context, value.args[0]), target, context.litert)


def _places(given: int, wanted: int, mode: str, rounding: str) -> tuple[int, ...]:
    """Return the source row of each result row."""
    one = np.float32(1)
    index = np.arange(wanted).astype("float32")
    if mode == "align_corners":
        scale = np.float32(given - 1) / np.float32(wanted - 1) if wanted > 1 else np.float32(0)
        place = index * scale
    else:
        scale = np.float32(given) / np.float32(wanted)
        if mode == "asymmetric":
            place = index * scale
        elif mode in ("half_pixel", "pytorch_half_pixel"):
            place = (index + one / 2) * scale - one / 2
            if mode == "pytorch_half_pixel" and wanted == 1:
                place = np.zeros_like(place)
        else:
            raise UnfitError(f"it places pixels by '{mode}'")
    if rounding in ("floor", ""):
        rounded = np.floor(place)
    elif rounding == "ceil":
        rounded = np.ceil(place)
    elif rounding == "round_prefer_floor":
        rounded = np.ceil(place - one / 2)
    elif rounding in ("round_prefer_ceil", "round"):
        rounded = np.floor(place + one / 2)
    else:
        raise UnfitError(f"it rounds by '{rounding}'")
    return tuple(int(value) for value in np.clip(rounded, 0, given - 1))


def _is_first(call: Any) -> bool:
    return channels_first(str(call.attrs.layout), str(call.attrs.out_layout or ""))
