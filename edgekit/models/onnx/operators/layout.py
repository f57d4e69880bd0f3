"""Operators that move elements without computing."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from edgekit.base.options import option
from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import (
    Converters,
    broadcast,
    cast,
    known_scalar,
    positive_axis,
    reshape,
    take_at,
)
from edgekit.models.onnx.values import (
    Expr,
    Value,
    as_expr,
    constant,
    dtype_named,
    dtype_of,
    shape_of,
)

op = relax.op


def _reshape(node: Node) -> Outputs:
    shape = node.shape(0)
    wanted = list(node.get("shape", ()) if node.opset < 5 else node.integers(1) or ())
    if not node.get("allowzero", 0):
        wanted = [shape[i] if extent == 0 else extent for i, extent in enumerate(wanted)]
    if -1 in wanted:
        rest = math.prod(extent for extent in wanted if extent != -1)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
    if math.prod(wanted) != math.prod(shape):
        raise RefusedError(
            f"its input {list(shape)} has {math.prod(shape)} elements, and the shape {wanted} has "
            f"{math.prod(wanted)}",
            f"this part of the model is made for other shapes: see {option('shape')}",
        )
    return reshape(node.expr(0), wanted)


def _flatten(node: Node) -> Outputs:
    shape = node.shape(0)
    axis = node.get("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return reshape(node.expr(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _transpose(node: Node) -> Outputs:
    order = node.get("perm", tuple(reversed(range(len(node.shape(0))))))
    return op.permute_dims(node.expr(0), list(order)) if order else node.expr(0)


def _axes(node: Node) -> tuple[int, ...] | None:
    return node.get("axes") if node.opset < 13 else node.integers(1)


def _squeeze(node: Node) -> Outputs:
    shape, axes = node.shape(0), _axes(node)
    if axes is None:
        axes = tuple(i for i, extent in enumerate(shape) if extent == 1)
    gone = {positive_axis(axis, len(shape)) for axis in axes}
    return reshape(node.expr(0), [e for i, e in enumerate(shape) if i not in gone])


def _unsqueeze(node: Node) -> Outputs:
    shape, axes = list(node.shape(0)), _axes(node) or ()
    rank = len(shape) + len(axes)
    for axis in sorted(positive_axis(axis, rank) for axis in axes):
        shape.insert(axis, 1)
    return reshape(node.expr(0), shape)


def _concat(node: Node) -> Outputs:
    axis = positive_axis(node.get("axis", 1), len(node.shape(0)))
    full = [i for i in range(len(node.inputs)) if node.shape(i)[axis] != 0]
    if len(full) == 1:
        return node.expr(full[0])
    return op.concat([node.expr(i) for i in full], axis=axis)


def _split(node: Node) -> Outputs:
    shape = node.shape(0)
    axis = positive_axis(node.get("axis", 0), len(shape))
    sizes = node.get("split") if node.opset < 13 else node.integers(1)
    if sizes is None:
        count = node.get("num_outputs", len(node.outputs))
        size = -(-shape[axis] // count)
        sizes = [size] * (count - 1) + [shape[axis] - size * (count - 1)]
    return list(split(node, node.expr(0), axis, tuple(sizes)))


def split(node: Node, value: Expr, axis: int, sizes: tuple[int, ...]) -> list[Expr]:
    """Split into pieces of the given sizes along an axis."""
    if sum(sizes) != shape_of(value)[axis] or min(sizes, default=0) < 0:
        raise RefusedError(f"the parts {list(sizes)} don't add up to {shape_of(value)[axis]}")
    ends = np.cumsum(sizes)
    return [
        node.emit(slice_axes(node, value, {axis: (int(end) - size, int(end), 1)}))
        for size, end in zip(sizes, ends, strict=True)
    ]


def slice_axes(node: Node, value: Expr, ranges: dict[int, tuple[int, int, int]]) -> Expr:
    """Slice each axis as Python does, with the start, stop and step of `slice.indices`."""
    shape = list(shape_of(value))
    spans = {axis: range(*limits) for axis, limits in ranges.items()}
    if any(len(span) == 0 for span in spans.values()):
        kept = [len(spans[i]) if i in spans else e for i, e in enumerate(shape)]
        return op.zeros(tuple(kept), dtype_of(value))
    wanted = {axis: span for axis, span in spans.items() if span != range(shape[axis])}
    if not wanted:
        return value
    forward = {axis: span[::-1] if span.step < 0 else span for axis, span in wanted.items()}
    result = op.strided_slice(
        value,
        list(forward),
        [span.start for span in forward.values()],
        [span[-1] + 1 for span in forward.values()],
        [span.step for span in forward.values()],
    )
    for axis, span in wanted.items():
        if span.step < 0:
            result = op.flip(node.emit(result), axis)
    return result


def _slice(node: Node) -> Outputs:
    shape = node.shape(0)
    if node.opset < 10:
        starts, ends = node.get("starts"), node.get("ends")
        axes, steps = node.get("axes"), None
    else:
        starts, ends = node.integers(1) or (), node.integers(2) or ()
        axes, steps = node.integers(3), node.integers(4)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    ranges = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = positive_axis(axis, len(shape))
        ranges[place] = slice(start, end, step).indices(shape[place])
    return slice_axes(node, node.expr(0), ranges)


def _expand(node: Node) -> Outputs:
    shape = np.broadcast_shapes(node.shape(0), node.integers(1) or ())
    return broadcast(node.expr(0), shape)


def _tile(node: Node) -> Outputs:
    if node.opset < 6:
        repeats = [1] * len(node.shape(0))
        repeats[int(known_scalar(node.known(2)))] = int(known_scalar(node.known(1)))
    else:
        repeats = list(node.integers(1) or ())
    if 0 in repeats:
        shape = tuple(e * r for e, r in zip(node.shape(0), repeats, strict=True))
        return op.zeros(shape, node.dtype(0))
    return tiled(node, node.expr(0), repeats)


def tiled(node: Node, value: Expr, repeats: list[int]) -> Expr:
    """Tile by broadcasting along a new axis before each; TVM's `tile` is wrong from four on."""
    shape = shape_of(value)
    apart = tuple(part for extent in shape for part in (1, extent))
    spread = tuple(part for pair in zip(repeats, shape, strict=True) for part in pair)
    copies = node.emit(op.broadcast_to(op.reshape(value, apart), spread))
    return op.reshape(copies, tuple(r * e for r, e in zip(repeats, shape, strict=True)))


def _pad(node: Node) -> Outputs:
    rank, mode = len(node.shape(0)), node.get("mode", "constant")
    if node.opset < 11:
        pads = node.get("pads", node.get("paddings"))
        fill: Value = np.array(node.get("value", 0.0)).astype(np.float32)
        axes = None
    else:
        pads, axes = node.integers(1) or (), node.integers(3)
        fill = node.known_or(2, None)
    places = range(rank) if axes is None else [positive_axis(axis, rank) for axis in axes]
    before, after = [0] * rank, [0] * rank
    for index, place in enumerate(places):
        before[place], after[place] = pads[index], pads[index + len(pads) // 2]
    number = 0 if fill is None else known_scalar(fill)
    return pad(node, node.expr(0), before, after, mode, number)


def pad(
    node: Node,
    value: Expr,
    before: list[int],
    after: list[int],
    mode: str = "constant",
    number: float = 0,
) -> Expr:
    """Grow (or, with negative amounts, cut) each side of each axis."""
    shape = shape_of(value)
    cut = {
        axis: (max(0, -low), extent - max(0, -high), 1)
        for axis, (low, high, extent) in enumerate(zip(before, after, shape, strict=True))
        if low < 0 or high < 0
    }
    if cut:
        value = node.emit(slice_axes(node, value, cut))
        shape = shape_of(value)
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        low, high = max(0, low), max(0, high)
        if not low and not high:
            continue
        if mode == "constant":
            value = _pad_constant(node, value, axis, low, high, number)
            continue
        picked = _padded_places(shape[axis], low, high, mode)
        value = node.emit(take_at(value, as_expr(picked), axis=axis))
    return value


def _padded_places(extent: int, low: int, high: int, mode: str) -> np.ndarray:
    """Return the source of each position of the padded axis."""
    places = np.arange(-low, extent + high)
    if mode == "edge":
        return np.clip(places, 0, extent - 1)
    if mode == "wrap":
        return places % extent
    if mode != "reflect":
        raise RefusedError(f"there is no padding mode {mode!r}")
    period = max(1, 2 * (extent - 1))
    turned = np.abs(places) % period
    mirrored: np.ndarray = np.where(turned > extent - 1, period - turned, turned)
    return mirrored


def _pad_constant(node: Node, value: Expr, axis: int, low: int, high: int, number: float) -> Expr:
    dtype = dtype_of(value)
    if dtype in ("float32", "float64", "int32", "int64", "int8", "uint8"):
        widths = [0] * (2 * len(shape_of(value)))
        widths[2 * axis : 2 * axis + 2] = [low, high]
        return node.emit(op.nn.pad(value, widths, "constant", number))
    parts = [value]
    for place, amount in ((0, low), (len(parts) + 1, high)):
        if amount:
            shape = tuple(amount if i == axis else e for i, e in enumerate(shape_of(value)))
            parts.insert(place, op.broadcast_to(constant(number, dtype), shape))
    return node.emit(op.concat(parts, axis=axis))


def _shape(node: Node) -> Outputs:
    start, end = node.get("start", 0), node.get("end")
    return np.array(node.shape(0)[start:end], np.int64)


def _constant(node: Node) -> Outputs:
    for attribute in ("value", "value_int", "value_ints", "value_float", "value_floats"):
        if attribute in node.attributes:
            dtype = np.float32 if "float" in attribute else np.int64
            value = node.attributes[attribute]
            return value if isinstance(value, np.ndarray) else np.array(value, dtype)
    if "sparse_value" in node.attributes:
        return np.asarray(node.attributes["sparse_value"])
    raise RefusedError("devices don't work with text")


def _constant_of_shape(node: Node) -> Outputs:
    value = node.get("value", np.zeros(1, np.float32))
    shape = node.integers(0) or ()
    return op.broadcast_to(as_expr(np.asarray(value).reshape(())), shape)


def _eye_like(node: Node) -> Outputs:
    import onnx

    element = node.get("dtype")
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(element)) if element else node.dtype(0)
    rows, columns = node.shape(0)
    return np.eye(rows, columns, k=node.get("k", 0)).astype(dtype_named(dtype))


def _trilu(node: Node) -> Outputs:
    value = node.expr(0)
    rows, columns = node.shape(0)[-2:]
    offset = int(known_scalar(node.known(1))) if node.has(1) else 0
    ones = np.ones((rows, columns), bool)
    mask = np.triu(ones, offset) if node.get("upper", 1) else np.tril(ones, offset)
    return op.where(as_expr(mask), value, op.zeros(node.shape(0), node.dtype(0)))


def _depth_to_space(node: Node) -> Outputs:
    batch, channels, height, width = node.shape(0)
    size = node.get("blocksize")
    depth = channels // (size * size)
    if node.get("mode", "DCR") == "DCR":
        parts, order = (batch, size, size, depth, height, width), [0, 3, 4, 1, 5, 2]
    else:
        parts, order = (batch, depth, size, size, height, width), [0, 1, 4, 2, 5, 3]
    moved = op.permute_dims(op.reshape(node.expr(0), parts), order)
    return op.reshape(moved, (batch, depth, height * size, width * size))


def _space_to_depth(node: Node) -> Outputs:
    batch, channels, height, width = node.shape(0)
    size = node.get("blocksize")
    high, wide = height // size, width // size
    parts = op.reshape(node.expr(0), (batch, channels, high, size, wide, size))
    order = [0, 3, 5, 1, 2, 4] if node.get("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    moved = op.permute_dims(parts, order)
    return op.reshape(moved, (batch, channels * size * size, high, wide))


def _reverse_sequence(node: Node) -> Outputs:
    lengths = cast(node.expr(1), "int64")
    return op.reverse_sequence(
        node.expr(0), node.emit(lengths), node.get("time_axis", 0), node.get("batch_axis", 1)
    )


LAYOUT: Converters = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Size": lambda node: np.array(math.prod(node.shape(0)), np.int64),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
