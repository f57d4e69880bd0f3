"""Gathering and scattering."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from edgekit.compiler.passes.indices import IndexRule, checked, counted_from_start, rule_of
from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, like, positive_axis, take_at
from edgekit.models.onnx.values import Expr, as_expr, constant, dtype_of, is_known

op = relax.op


def wrapped(node: Node, position: int, *extents: int) -> Expr:
    """Make indices that may count from the end count from the start, and check them: all against
    one extent, or each entry of the last axis against one of several."""
    value = node.value(position)
    signed = is_known(value) or not dtype_of(value).startswith("uint")
    if is_known(value):
        rule = IndexRule(node.name or node.operator, extents, signed)
        return as_expr(counted_from_start(value, rule))
    earlier = rule_of(node.block.lookup_binding(value)) if isinstance(value, relax.Var) else None
    if earlier is not None and earlier.extents == extents:
        return node.emit(cast(value, "int64"))
    return node.emit(cast(node.emit(checked(value, IndexRule("", extents, signed))), "int64"))


def _gather(node: Node) -> Outputs:
    axis = positive_axis(node.get("axis", 0), len(node.shape(0)))
    return take_at(node.expr(0), wrapped(node, 1, node.shape(0)[axis]), axis=axis)


def _gather_elements(node: Node) -> Outputs:
    axis = positive_axis(node.get("axis", 0), len(node.shape(0)))
    return op.gather_elements(node.expr(0), wrapped(node, 1, node.shape(0)[axis]), axis)


def _flat_indices(node: Node, shape: tuple[int, ...], batch: int) -> Expr:
    """Return index tuples (last axis) as positions in the flattened indexed axes."""
    depth = node.shape(1)[-1]
    extents = shape[batch : batch + depth]
    steps = np.array([math.prod(extents[i + 1 :]) for i in range(depth)], np.int64)
    inside = wrapped(node, 1, *extents)
    return node.emit(op.sum(op.multiply(inside, as_expr(steps)), [-1]))


def _gather_nd(node: Node) -> Outputs:
    shape, batch = node.shape(0), node.get("batch_dims", 0)
    index_shape = node.shape(1)
    depth = index_shape[-1]
    flat = _flat_indices(node, shape, batch)
    batches = math.prod(shape[:batch])
    rows = math.prod(shape[batch : batch + depth])
    rest = shape[batch + depth :]
    data = op.reshape(node.expr(0), (batches * rows, *rest))
    if batch:
        each = math.prod(index_shape[batch:-1])
        start = np.repeat(np.arange(batches) * rows, each).reshape(index_shape[:-1])
        flat = op.add(flat, as_expr(start.astype(np.int64)))
    return take_at(node.emit(data), node.emit(flat), axis=0)


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _scatter_elements(node: Node) -> Outputs:
    axis = positive_axis(node.get("axis", 0), len(node.shape(0)))
    reduction = _REDUCTIONS[node.get("reduction", "none")]
    indices = wrapped(node, 1, node.shape(0)[axis])
    updates, read = node.expr(2), node.shape(1)
    if node.shape(2) != read:  # an index selects the update at its own position
        axes = list(range(len(read)))
        updates = node.emit(op.strided_slice(updates, axes, [0] * len(read), list(read)))
    return op.scatter_elements(node.expr(0), indices, updates, axis, reduction)


def _scatter_nd(node: Node) -> Outputs:
    """Scatter through a table of rows, one index tuple per row."""
    shape = node.shape(0)
    depth = node.shape(1)[-1]
    rows, rest = math.prod(shape[:depth]), math.prod(shape[depth:])
    flat = op.reshape(_flat_indices(node, shape, 0), (-1, 1))
    count = math.prod(node.shape(1)[:-1])
    if count == 0:
        return node.expr(0)
    table = op.reshape(node.expr(0), (rows, rest))
    updates = op.reshape(node.expr(2), (count, rest))
    result = op.scatter_elements(
        node.emit(table),
        node.emit(op.broadcast_to(flat, (count, rest))),
        node.emit(updates),
        0,
        _REDUCTIONS[node.get("reduction", "none")],
    )
    return op.reshape(result, shape)


def _one_hot(node: Node) -> Outputs:
    depth = int(node.known(1).reshape(-1)[0])
    rank = len(node.shape(0))
    axis = positive_axis(node.get("axis", -1), rank + 1)
    indices = node.emit(cast(node.expr(0), "int64"))
    inside = op.where(
        op.less(indices, like(0, indices)), op.add(indices, like(depth, indices)), indices
    )
    classes = np.arange(depth).reshape(tuple(depth if i == axis else 1 for i in range(rank + 1)))
    hot = op.equal(op.expand_dims(inside, axis), as_expr(classes.astype(np.int64)))
    values = node.expr(2)
    off, on = (take_at(values, constant(i, "int64"), axis=0) for i in (0, 1))
    return op.where(hot, on, off)


def _compress(node: Node) -> Outputs:
    picked = np.flatnonzero(node.known(1)).astype(np.int64)
    value, axis = node.expr(0), node.get("axis")
    if axis is None:
        return take_at(op.reshape(value, (-1,)), as_expr(picked), axis=0)
    return take_at(value, as_expr(picked), axis=positive_axis(axis, len(node.shape(0))))


def _tensor_scatter(node: Node) -> Outputs:
    """Write new entries into a cache, each batch from its own position."""
    shape, update_shape = node.shape(0), node.shape(1)
    axis = positive_axis(node.get("axis", -2), len(shape))
    length, extent = update_shape[axis], shape[axis]
    ndim = len(shape)
    offsets = np.arange(length).reshape(tuple(length if i == axis else 1 for i in range(ndim)))
    start = as_expr(np.zeros((1,) * ndim, np.int64))
    if node.has(2):
        start = op.reshape(cast(node.expr(2), "int64"), (shape[0],) + (1,) * (ndim - 1))
    places = node.emit(op.add(start, as_expr(offsets.astype(np.int64))))
    if node.get("mode", "linear") == "circular":
        places = node.emit(op.floor_mod(places, like(extent, places)))
    indices = node.emit(op.broadcast_to(places, update_shape))
    return op.scatter_elements(node.expr(0), indices, node.expr(1), axis)


def _max_unpool(node: Node) -> Outputs:
    shape = node.shape(0)
    kernel = node.get("kernel_shape")
    strides = node.get("strides", (1,) * len(kernel))
    pads = node.get("pads", (0,) * (2 * len(kernel)))
    natural = tuple(
        (extent - 1) * stride - low - high + size
        for extent, stride, size, low, high in zip(
            shape[2:], strides, kernel, pads[: len(kernel)], pads[len(kernel) :], strict=True
        )
    )
    output = (*shape[:2], *natural)
    wanted = node.integers(2) or output
    planes = output[0] * output[1]
    if wanted[:2] != output[:2]:
        raise RefusedError("it changes the batch or the channels")
    # The indices refer to the tensor that was pooled. If a larger output is requested, they
    # refer to a tensor of the natural size, with the same corner.
    indices = op.reshape(node.expr(1), (-1,))
    flat = op.zeros((planes * math.prod(natural),), node.dtype(0))
    result = op.scatter_elements(
        node.emit(flat), node.emit(indices), node.emit(op.reshape(node.expr(0), (-1,))), 0
    )
    result = node.emit(op.reshape(result, output))
    widths = [w for o, n in zip(output, wanted, strict=True) for w in (0, n - o)]
    return op.nn.pad(result, widths, "constant", 0.0) if any(widths) else result


INDEXING: Converters = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "MaxUnpool": _max_unpool,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
}
