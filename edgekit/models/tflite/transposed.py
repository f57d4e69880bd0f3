"""TRANSPOSE_CONV in the only layout that TVM can compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import get_pad_value

from edgekit.models.tflite.conversion import Conversion
from edgekit.models.tflite.layers import activated, bias_as_float


def convert_transposed_convolution(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert TRANSPOSE_CONV. TVM's converter emits NHWC, for which TVM has no loop nest."""
    tensors = converter.get_input_tensors(operator)
    (target,) = converter.get_output_tensors(operator)
    shape, weights, source = tensors[:3]
    options = tflite.TransposeConvOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    strides = (options.StrideH(), options.StrideW())
    extents = [int(extent) for extent in converter.get_tensor_value(shape)]
    given = [int(extent) for extent in converter.get_tensor_shape(source)]
    channels, *kernel, _ = (int(extent) for extent in converter.get_tensor_shape(weights))
    begins, ends, extra = [], [], []
    for axis in (0, 1):
        begin = end = 0
        if options.Padding() == tflite.Padding.SAME:
            begin, end = get_pad_value(extents[1 + axis], kernel[axis], strides[axis])
        reached = (given[1 + axis] - 1) * strides[axis] + kernel[axis] - begin - end
        begins.append(begin)
        ends.append(end)
        extra.append(extents[1 + axis] - reached)

    data = converter.get_expr(source.tensor_idx)
    kernel_values = relax.const(
        np.ascontiguousarray(converter.get_tensor_value(weights).transpose(3, 0, 1, 2))
    )
    if source.qnn_params:
        data = converter.dequantize(data, source)
        kernel_values = relax.op.dequantize(
            kernel_values, weights.qnn_params["scale"], weights.qnn_params["zero_point"], axis=1
        )
    result = relax.op.nn.conv2d_transpose(
        relax.op.permute_dims(data, [0, 3, 1, 2]),
        kernel_values,
        strides=strides,
        padding=(*begins, *ends),
        output_padding=tuple(extra),
        data_layout="NCHW",
        kernel_layout="IOHW",
    )
    result = relax.op.permute_dims(result, [0, 2, 3, 1])
    if len(tensors) > 3 and tensors[3].tensor_idx >= 0:
        bias = bias_as_float(converter, tensors[3], source, weights, channels)
        result = relax.op.add(result, bias)
    return activated(converter, result, target, options.FusedActivationFunction())
