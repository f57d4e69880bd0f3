"""Average pooling of quantised tensors as LiteRT does it."""

from __future__ import annotations

from typing import Any

import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import get_pad_value

from edgekit.models.tflite.conversion import Conversion


def convert_average_pool(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert AVERAGE_POOL_2D. TVM divides integers toward zero; LiteRT rounds half away from zero.

    LiteRT averages stored values, not real ones: ties go away from a stored zero.
    """
    (source,) = converter.get_input_tensors(operator)
    (target,) = converter.get_output_tensors(operator)
    if not source.qnn_params:
        return converter.convert_pool2d(operator, pool_type="average")
    if not converter.has_same_qnn_params(source, target):
        raise ValueError("its input and output are quantised differently")
    options = tflite.Pool2DOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    average = relax.op.nn.avg_pool2d(
        relax.op.astype(converter.get_expr(source.tensor_idx), "float32"),
        pool_size=(options.FilterHeight(), options.FilterWidth()),
        strides=(options.StrideH(), options.StrideW()),
        padding=_padding(options, converter.get_tensor_shape(source)),
        layout="NHWC",
    )
    converter.repaired("int8 average pooling rounds as LiteRT does")
    dtype = converter.get_tensor_type_str(target.tensor.Type())
    return converter.convert_qnn_fused_activation_function(
        round_half_away(average, dtype),
        options.FusedActivationFunction(),
        float(target.qnn_params["scale"].value.numpy()),
        int(target.qnn_params["zero_point"].value.numpy()),
        dtype,
    )


def round_half_away(value: Any, dtype: str) -> Any:
    """Round, ties away from zero. `relax.round` goes to even on x86 and away from zero in C."""
    half = relax.op.multiply(relax.op.sign(value), relax.const(0.5, "float32"))
    return relax.op.astype(relax.op.add(value, half), dtype)


def _padding(options: tflite.Pool2DOptions, shape: Any) -> list[int]:
    if options.Padding() == tflite.Padding.VALID:
        return [0, 0, 0, 0]
    top, bottom = get_pad_value(int(shape[1]), options.FilterHeight(), options.StrideH())
    left, right = get_pad_value(int(shape[2]), options.FilterWidth(), options.StrideW())
    return [top, left, bottom, right]
