"""Sampling images at positions that are computed on the device."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from edgekit.compiler.passes.indices import IndexRule, checked
from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, like, take_at, wide
from edgekit.models.onnx.operators.convolution import spatial
from edgekit.models.onnx.operators.layout import pad
from edgekit.models.onnx.values import Expr, as_expr, dtype_of

op = relax.op

_GRID_MODES = {"linear": "bilinear", "cubic": "bicubic"}


def _grid_sample(node: Node) -> Outputs:
    rank = len(node.shape(0))
    mode = node.get("mode", "linear")
    mode = _GRID_MODES.get(mode, mode)
    if rank not in (4, 5) or (rank == 5 and mode == "bicubic"):
        raise RefusedError(f"{mode} sampling over {rank - 2} axes is not supported")
    image, grid = (wide(node, node.expr(place)) for place in (0, 1))
    sampled = op.image.grid_sample(
        image,
        node.emit(op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])),
        method=mode,
        layout="NCHW" if rank == 4 else "NCDHW",
        padding_mode=node.get("padding_mode", "zeros"),
        align_corners=bool(node.get("align_corners", 0)),
    )
    return cast(node.emit(sampled), node.dtype(0))


def _roi_align(node: Node) -> Outputs:
    if node.get("mode", "avg") != "avg":
        raise RefusedError("TVM's kernel for mode 'max' takes the largest of the wrong things")
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    half = node.get("coordinate_transformation_mode", default) == "half_pixel"
    regions = node.expr(1)
    scaled = op.multiply(regions, like(node.get("spatial_scale", 1.0), regions))
    if half:
        scaled = op.subtract(scaled, like(0.5, regions))
    images = node.emit(checked(node.expr(2), IndexRule("", node.shape(0)[:1])))
    batches = op.expand_dims(cast(images, dtype_of(regions)), 1)
    return op.vision.roi_align(
        node.expr(0),
        node.emit(op.concat([batches, scaled], axis=1)),
        pooled_size=(node.get("output_height", 1), node.get("output_width", 1)),
        spatial_scale=1.0,
        sample_ratio=node.get("sampling_ratio", 0),
        aligned=half,
        layout="NCHW",
        mode="avg",
    )


def _col2im(node: Node) -> Outputs:
    """Add every cell of every window to its position in the image."""
    image, block = node.integers(1) or (), node.integers(2) or ()
    rank = len(image)
    strides, dilations = spatial(node, "strides", rank), spatial(node, "dilations", rank)
    pads = tuple(node.get("pads", (0,) * (2 * rank)))
    padded = [e + pads[i] + pads[i + rank] for i, e in enumerate(image)]
    axes = []
    for axis in range(rank):
        span = dilations[axis] * (block[axis] - 1) + 1
        starts = np.arange((padded[axis] - span) // strides[axis] + 1) * strides[axis]
        axes.append(np.arange(block[axis])[:, None] * dilations[axis] + starts)
    places = np.zeros((1,) * (2 * rank), np.int64)
    for axis, cells in enumerate(axes):
        shape = [1] * (2 * rank)
        shape[axis], shape[axis + rank] = cells.shape
        places = places * padded[axis] + cells.reshape(shape)
    batch = node.shape(0)[0]
    channels = node.shape(0)[1] // math.prod(block)
    updates = op.reshape(node.expr(0), (batch * channels, places.size))
    indices = np.broadcast_to(places.reshape(1, -1), (batch * channels, places.size))
    blank = op.zeros((batch * channels, math.prod(padded)), node.dtype(0))
    whole = op.scatter_elements(
        node.emit(blank), as_expr(indices.copy()), node.emit(updates), 1, "add"
    )
    whole = node.emit(op.reshape(whole, (batch, channels, *padded)))
    return pad(node, whole, [0, 0, *(-p for p in pads[:rank])], [0, 0, *(-p for p in pads[rank:])])


LARGEST_DETERMINANT = 4


def _determinant(node: Node) -> Outputs:
    size = node.shape(0)[-1]
    if size > LARGEST_DETERMINANT:
        raise RefusedError(f"determinants go up to {LARGEST_DETERMINANT} rows, not {size}")
    rank = len(node.shape(0))
    cells = [[_cell(node, i, j, rank) for j in range(size)] for i in range(size)]
    return node.emit(_expanded(cells))


def _cell(node: Node, row: int, column: int, rank: int) -> Expr:
    picked = take_at(node.expr(0), relax.const(row, "int64"), axis=rank - 2)
    return node.emit(take_at(picked, relax.const(column, "int64"), axis=rank - 2))


def _expanded(cells: list[list[Expr]]) -> Expr:
    """Compute a determinant by Laplace's expansion along the first row."""
    if len(cells) == 1:
        return cells[0][0]
    total = None
    for column, factor in enumerate(cells[0]):
        minor = [row[:column] + row[column + 1 :] for row in cells[1:]]
        term = op.multiply(factor, _expanded(minor))
        if total is None:
            total = term
        else:
            total = op.subtract(total, term) if column % 2 else op.add(total, term)
    return total


VISION: Converters = {
    "Col2Im": _col2im,
    "Det": _determinant,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
}
