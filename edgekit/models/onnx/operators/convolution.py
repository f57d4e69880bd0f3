"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, reshape, wide
from edgekit.models.onnx.operators.layout import pad
from edgekit.models.onnx.values import Expr, as_expr, dtype_of, is_known, shape_of

op = relax.op

_CONVOLUTIONS: dict[int, Callable[..., Expr]] = {
    1: op.nn.conv1d,
    2: op.nn.conv2d,
    3: op.nn.conv3d,
}
_TRANSPOSED: dict[int, Callable[..., Expr]] = {
    1: op.nn.conv1d_transpose,
    2: op.nn.conv2d_transpose,
    3: op.nn.conv3d_transpose,
}


def spatial(node: Node, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with one number per spatial axis."""
    return tuple(node.get(name, (default,) * rank))


def same_pads(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    upper: bool,
) -> tuple[int, ...]:
    """Return the padding for SAME_UPPER and SAME_LOWER: an odd one goes after, or before."""
    before, after = [], []
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        span = dilation * (size - 1) + 1
        total = max(0, (-(-extent // stride) - 1) * stride + span - extent)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return (*before, *after)


def pads_of(
    node: Node,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    mode = node.get("auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        return same_pads(extents, kernel, strides, dilations, mode == "SAME_UPPER")
    if mode == "VALID":
        return (0,) * (2 * len(kernel))
    return tuple(node.get("pads", (0,) * (2 * len(kernel))))


def convolve(node: Node, value: Expr, weight: Expr) -> Expr:
    """Apply the node's convolution to these two, without a bias."""
    kernel = shape_of(weight)[2:]
    rank = len(kernel)
    if rank not in _CONVOLUTIONS:
        raise RefusedError(f"convolutions over {rank} axes are not supported")
    strides, dilations = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    pads = pads_of(node, shape_of(value)[2:], kernel, strides, dilations)
    result = _CONVOLUTIONS[rank](
        wide(node, value),
        wide(node, weight),
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=node.get("group", 1),
    )
    return cast(node.emit(result), dtype_of(value))


def _conv(node: Node) -> Outputs:
    result = convolve(node, node.expr(0), node.expr(1))
    return with_bias(node, node.emit(result), 2)


def with_bias(node: Node, value: Expr, position: int) -> Expr:
    """Add the bias along the channels, if the node has one."""
    if not node.has(position):
        return value
    bias, shape = node.value(position), (1, -1) + (1,) * (len(shape_of(value)) - 2)
    return op.add(
        value, as_expr(bias.reshape(shape)) if is_known(bias) else op.reshape(bias, shape)
    )


def _conv_transpose(node: Node) -> Outputs:
    """Compute without padding, then crop: that works for every padding, even an uneven one."""
    value, weight = (wide(node, node.expr(place)) for place in (0, 1))
    extents, kernel = shape_of(value)[2:], shape_of(weight)[2:]
    rank, groups = len(kernel), node.get("group", 1)
    if rank not in _TRANSPOSED:
        raise RefusedError(f"convolutions over {rank} axes are not supported")
    strides, dilations = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    extra = spatial(node, "output_padding", rank, 0)
    full = [
        (extent - 1) * stride + dilation * (size - 1) + 1
        for extent, stride, dilation, size in zip(extents, strides, dilations, kernel, strict=True)
    ]
    before, output = _transposed_extents(node, extents, strides, full, extra)
    after = [f - b - o for f, b, o in zip(full, before, output, strict=True)]
    even = all(b >= 0 and a >= 0 for b, a in zip(before, after, strict=True)) and rank == 2
    result = node.emit(
        _TRANSPOSED[rank](
            value,
            weight,
            strides=strides,
            padding=(*before, *after) if even else (0,) * (2 * rank),
            dilation=dilations,
            groups=groups,
        )
    )
    if not even:
        result = pad(node, result, [0, 0, *(-b for b in before)], [0, 0, *(-a for a in after)])
    return with_bias(node, node.emit(cast(result, node.dtype(0))), 2)


def _transposed_extents(
    node: Node,
    extents: Sequence[int],
    strides: Sequence[int],
    full: Sequence[int],
    extra: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return the crop before and the length of the output along each axis."""
    rank = len(extents)
    mode = node.get("auto_pad", "NOTSET")
    wanted = node.get("output_shape")
    if wanted is not None or mode.startswith("SAME"):
        output = (
            list(wanted[-rank:])
            if wanted
            else [e * s for e, s in zip(extents, strides, strict=True)]
        )
        totals = [f + x - o for f, x, o in zip(full, extra, output, strict=True)]
        upper = mode == "SAME_UPPER"
        return [t // 2 if upper else t - t // 2 for t in totals], output
    pads = (0,) * (2 * rank) if mode == "VALID" else node.get("pads", (0,) * (2 * rank))
    output = [
        f + x - low - high
        for f, x, low, high in zip(full, extra, pads[:rank], pads[rank:], strict=True)
    ]
    return list(pads[:rank]), output


def without_zero_point(node: Node, position: int, zero: int, axis: int | None) -> Expr:
    """Return a quantised input as int32, less its zero point (along `axis`, if it has one)."""
    value = node.emit(op.astype(node.expr(position), "int32"))
    if not node.has(zero):
        return value
    point = node.expr(zero)
    if shape_of(point) == (1,):
        point = node.emit(reshape(point, ()))
    if len(shape_of(point)) == 1 and axis is not None:
        rank = len(shape_of(value))
        spread = tuple(-1 if i == axis % rank else 1 for i in range(rank))
        point = node.emit(op.reshape(point, spread))
    return node.emit(op.subtract(value, cast(point, "int32")))


CONVOLUTION: Converters = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
