"""Pooling, with ONNX's rules for windows that extend beyond the edge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, like, take_at, wide
from edgekit.models.onnx.operators.convolution import pads_of, spatial
from edgekit.models.onnx.operators.layout import pad
from edgekit.models.onnx.values import Expr, as_expr, dtype_minimum, dtype_of, shape_of

op = relax.op

_MAXIMUM = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


@dataclass(frozen=True)
class PoolingWindow:
    """The geometry of the windows of a pooling."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    """The model's padding after each axis."""
    output: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """Return the padding after each axis that the last window needs; may be negative."""
        return tuple(
            (count - 1) * stride + dilation * (size - 1) + 1 - extent - low
            for count, stride, dilation, size, extent, low in zip(
                self.output,
                self.strides,
                self.dilations,
                self.kernel,
                self.extents,
                self.before,
                strict=True,
            )
        )

    @property
    def padding(self) -> tuple[int, ...]:
        return (*self.before, *(max(0, amount) for amount in self.reach))

    def counts(self) -> np.ndarray:
        """Return how many cells of each window lie inside the padded image."""
        total = np.ones((1,) * len(self.kernel))
        for axis, size in enumerate(self.kernel):
            starts = np.arange(self.output[axis]) * self.strides[axis] - self.before[axis]
            cells = starts[:, None] + np.arange(size) * self.dilations[axis]
            inside = (cells < self.extents[axis] + self.after[axis]).sum(axis=1)
            total = total * inside.reshape(
                tuple(-1 if i == axis else 1 for i in range(len(self.kernel)))
            )
        return total


def window_of(node: Node) -> PoolingWindow:
    extents, kernel = node.shape(0)[2:], tuple(node.get("kernel_shape"))
    rank = len(kernel)
    if rank not in _MAXIMUM:
        raise RefusedError(f"pooling over {rank} axes is not supported")
    strides, dilations = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    pads = pads_of(node, extents, kernel, strides, dilations)
    before, after = pads[:rank], pads[rank:]
    output = []
    for axis in range(rank):
        span = dilations[axis] * (kernel[axis] - 1) + 1
        padded = extents[axis] + before[axis] + after[axis]
        room = padded - span
        if room < 0:
            raise RefusedError(f"its window of {span} is larger than the padded input of {padded}")
        if node.get("ceil_mode", 0):
            count = -(-room // strides[axis]) + 1
            if (count - 1) * strides[axis] >= extents[axis] + before[axis]:
                count -= 1  # a window that starts in the padding after the end does not count
        else:
            count = room // strides[axis] + 1
        output.append(count)
    return PoolingWindow(extents, kernel, strides, dilations, before, after, tuple(output))


def _pooled(
    functions: dict[int, Callable[..., Expr]], value: Expr, window: PoolingWindow, **options: bool
) -> Expr:
    return functions[len(window.kernel)](
        value,
        pool_size=window.kernel,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        **options,
    )


def _max_pool(node: Node) -> Outputs:
    window = window_of(node)
    if node.wants(1):
        return _max_pool_with_indices(node, window)
    return _pooled(_MAXIMUM, node.expr(0), window)


def _max_pool_with_indices(node: Node, window: PoolingWindow) -> Outputs:
    """Gather every window, find its largest cell, and look up that cell's position."""
    value = wide(node, node.expr(0))
    dtype = dtype_of(value)
    rank, lead = len(window.kernel), node.shape(0)[:2]
    lowest = float(np.finfo(dtype).min) if dtype.startswith("float") else dtype_minimum(dtype)
    padding = window.padding
    padded = pad(node, value, [0, 0, *padding[:rank]], [0, 0, *padding[rank:]], number=lowest)
    sides = shape_of(padded)[2:]
    cells = _cells(window)
    inner = np.ravel_multi_index(
        [c + low for c, low in zip(cells, window.before, strict=True)], sides
    )
    count, size = inner.shape
    flat = op.reshape(padded, (*lead, math.prod(sides)))
    windows = op.reshape(
        take_at(flat, as_expr(inner.reshape(-1).astype(np.int64)), axis=2),
        (*lead, count, size),
    )
    windows = node.emit(windows)
    best = node.emit(op.argmax(windows, 3, keepdims=True))
    largest = op.reshape(op.max(windows, [3]), (*lead, *window.output))
    inside = [np.clip(c, 0, e - 1) for c, e in zip(cells, window.extents, strict=True)]
    shape = window.extents[::-1] if node.get("storage_order", 0) else window.extents
    order = inside[::-1] if node.get("storage_order", 0) else inside
    places = np.ravel_multi_index(order, shape).astype(np.int64)
    chosen = op.add(
        op.reshape(best, (*lead, count)), as_expr(np.arange(count, dtype=np.int64) * size)
    )
    index = take_at(as_expr(places.reshape(-1)), node.emit(chosen), axis=0)
    planes = np.arange(math.prod(lead), dtype=np.int64).reshape(*lead, 1)
    index = op.add(index, as_expr(planes * math.prod(window.extents)))
    largest = cast(node.emit(largest), node.dtype(0))
    return [node.emit(largest), node.emit(op.reshape(index, (*lead, *window.output)))]


def _cells(window: PoolingWindow) -> list[np.ndarray]:
    """Return for each axis the coordinates of every cell (columns) of every window (rows)."""
    starts = itertools.product(*(range(count) for count in window.output))
    offsets = list(itertools.product(*(range(size) for size in window.kernel)))
    grid = np.array(
        [
            [
                [
                    o * stride - low + k * dilation
                    for o, stride, low, k, dilation in zip(
                        start, window.strides, window.before, offset, window.dilations, strict=True
                    )
                ]
                for offset in offsets
            ]
            for start in starts
        ]
    )
    return [grid[:, :, axis] for axis in range(len(window.kernel))]


def _average_pool(node: Node) -> Outputs:
    window = window_of(node)
    value = wide(node, node.expr(0))
    include = bool(node.get("count_include_pad", 0))
    result = _pooled(_AVERAGE, value, window, count_include_pad=include)
    if include:
        counts = window.counts()
        if (counts != math.prod(window.kernel)).any():
            scale = (math.prod(window.kernel) / counts).astype(dtype_of(value))
            result = op.multiply(result, as_expr(scale[None, None]))
    return cast(node.emit(result), node.dtype(0))


def _lp_pool(node: Node) -> Outputs:
    window = window_of(node)
    value, power = node.expr(0), float(node.get("p", 2))
    raised = op.power(op.abs(value), like(power, value))
    mean = _pooled(_AVERAGE, node.emit(raised), window, count_include_pad=True)
    total = op.multiply(mean, like(math.prod(window.kernel), value))
    return op.power(total, like(1 / power, value))


def _spatial_axes(node: Node) -> list[int]:
    return list(range(2, len(node.shape(0))))


def _global_average(node: Node) -> Outputs:
    return op.mean(node.expr(0), _spatial_axes(node), keepdims=True)


def _global_maximum(node: Node) -> Outputs:
    return op.max(node.expr(0), _spatial_axes(node), keepdims=True)


def _global_lp(node: Node) -> Outputs:
    value, power = node.expr(0), float(node.get("p", 2))
    raised = op.power(op.abs(value), like(power, value))
    return op.power(op.sum(raised, _spatial_axes(node), keepdims=True), like(1 / power, value))


POOLING: Converters = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_lp,
    "GlobalMaxPool": _global_maximum,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
