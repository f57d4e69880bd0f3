"""Operators that move values and that TVM's converter gets wrong."""

from __future__ import annotations

from typing import Any

import tflite
from tvm import relax

from edgekit.models.tflite.conversion import Conversion


def convert_expand_dims(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert EXPAND_DIMS. TVM calls its own operator with one argument too many."""
    source, axis = converter.get_input_tensors(operator)
    return relax.op.expand_dims(
        converter.get_tensor_expr(source), int(converter.get_tensor_value(axis).item())
    )


def convert_gather_nd(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert GATHER_ND. TVM wrongly moves the last axis of the indices first."""
    source, indices = converter.get_input_tensors(operator)
    wide = relax.op.astype(converter.get_tensor_expr(indices), "int64")
    return relax.op.gather_nd(converter.get_tensor_expr(source), wide)


def convert_space_to_batch(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert SPACE_TO_BATCH_ND. TVM calls a packed function with wrong arguments."""
    source, block_tensor, pads_tensor = converter.get_input_tensors(operator)
    block = [int(extent) for extent in converter.get_tensor_value(block_tensor)]
    pads = converter.get_tensor_value(pads_tensor).tolist()
    rank = len(converter.get_tensor_shape(source))
    widths = [0, 0, *(extent for pair in pads for extent in pair)]
    widths += [0] * (2 * rank - len(widths))
    fill = int(source.qnn_params["zero_point"].value.numpy()) if source.qnn_params else 0
    data = relax.op.nn.pad(converter.get_tensor_expr(source), widths, pad_value=fill)
    shape = [int(extent) for extent in converter.get_tensor_shape(source)]
    shape = [extent + widths[2 * axis] + widths[2 * axis + 1] for axis, extent in enumerate(shape)]
    count = len(block)
    rest = shape[1 + count :]
    split = [shape[0]]
    for extent, size in zip(shape[1:], block, strict=False):
        split += [extent // size, size]
    blocks = [2 + 2 * place for place in range(count)]
    places = [1 + 2 * place for place in range(count)]
    tail = [1 + 2 * count + place for place in range(len(rest))]
    moved = relax.op.permute_dims(
        relax.op.reshape(data, (*split, *rest)), [*blocks, 0, *places, *tail]
    )
    batch = shape[0]
    for size in block:
        batch *= size
    return relax.op.reshape(moved, (batch, *(split[place] for place in places), *rest))


def convert_batch_to_space(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert BATCH_TO_SPACE_ND. TVM calls a packed function with wrong arguments."""
    source, block_tensor, crops_tensor = converter.get_input_tensors(operator)
    block = [int(extent) for extent in converter.get_tensor_value(block_tensor)]
    crops = converter.get_tensor_value(crops_tensor).tolist()
    shape = [int(extent) for extent in converter.get_tensor_shape(source)]
    count = len(block)
    batch = shape[0]
    for size in block:
        batch //= size
    spatial, rest = shape[1 : 1 + count], shape[1 + count :]
    order = [count]
    for place in range(count):
        order += [count + 1 + place, place]
    order += [1 + 2 * count + place for place in range(len(rest))]
    data = relax.op.reshape(converter.get_tensor_expr(source), (*block, batch, *spatial, *rest))
    extents = [extent * size for extent, size in zip(spatial, block, strict=True)]
    joined = relax.op.reshape(relax.op.permute_dims(data, order), (batch, *extents, *rest))
    return relax.op.strided_slice(
        joined,
        axes=list(range(1, 1 + count)),
        begin=[begin for begin, _ in crops],
        end=[extent - end for extent, (_, end) in zip(extents, crops, strict=True)],
    )


def convert_resize_nearest(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert RESIZE_NEAREST_NEIGHBOR. With aligned corners TVM rounds ties to even, LiteRT up."""
    source, size = converter.get_input_tensors(operator)
    options = tflite.ResizeNearestNeighborOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    mode, rounding = "asymmetric", "floor"
    if options.AlignCorners():
        mode, rounding = "align_corners", "round_prefer_ceil"
    elif options.HalfPixelCenters():
        mode, rounding = "half_pixel", "round_prefer_ceil"
    return relax.op.image.resize2d(
        converter.get_expr(source.tensor_idx),
        tuple(int(extent) for extent in converter.get_tensor_value(size)),
        None,
        "NHWC",
        "nearest_neighbor",
        mode,
        rounding,
    )
