"""FULLY_CONNECTED and SOFTMAX, of which TVM's converter implements only a part."""

from __future__ import annotations

import math
from typing import Any

import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import TensorWrapper

from edgekit.models.tflite.conversion import Conversion


def convert_fully_connected(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert FULLY_CONNECTED. TVM does not flatten the input, and transposes weights at run time.

    This transposes the weights on import, so that dequantize stays directly on a constant, where
    the rewriting to int8 expects it.
    """
    tensors = converter.get_input_tensors(operator)
    (target,) = converter.get_output_tensors(operator)
    source, weights = tensors[:2]
    bias = tensors[2] if len(tensors) > 2 and tensors[2].tensor_idx >= 0 else None
    options = tflite.FullyConnectedOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    if options.WeightsFormat() != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise ValueError("its weights are shuffled for one kind of processor")

    units, depth = (int(extent) for extent in converter.get_tensor_shape(weights))
    shape = [int(extent) for extent in converter.get_tensor_shape(source)]
    lead = shape[:-1] if options.KeepNumDims() else [math.prod(shape) // depth]
    data = converter.get_tensor_expr(source)
    if shape != [*lead, depth]:
        data = relax.op.reshape(data, (*lead, depth))
    product = relax.op.matmul(
        converter.dequantize(data, source) if source.qnn_params else data,
        _transposed(converter, weights),
    )
    if bias is not None:
        product = relax.op.add(product, bias_as_float(converter, bias, source, weights, units))
    return activated(converter, product, target, options.FusedActivationFunction())


def _transposed(converter: Conversion, weights: TensorWrapper) -> Any:
    if converter.has_expr(weights.tensor_idx):
        expression = relax.op.permute_dims(converter.get_expr(weights.tensor_idx), [1, 0])
    else:
        value = converter.get_tensor_value_or_prefetched(weights)
        expression = relax.const(value.T.copy(), str(value.dtype))
    if not weights.qnn_params:
        return expression
    return relax.op.dequantize(
        expression, weights.qnn_params["scale"], weights.qnn_params["zero_point"], axis=1
    )


def bias_as_float(
    converter: Conversion,
    bias: TensorWrapper,
    source: TensorWrapper,
    weights: TensorWrapper,
    units: int,
) -> Any:
    """Return the bias as floats. LiteRT stores it in steps of input scale times weight scale."""
    expression = relax.op.reshape(converter.get_tensor_expr(bias), (units,))
    if bias.tensor.ShapeLength() == 1:
        expression = converter.get_tensor_expr(bias)
    if not source.qnn_params:
        return expression
    if bias.qnn_params:
        return converter.dequantize(expression, bias)
    if converter.get_tensor_type_str(source.tensor.Type()) == "int16":
        raise ValueError("its bias has no scale")
    scale = source.qnn_params["scale"].value.numpy() * weights.qnn_params["scale"].value.numpy()
    return relax.op.dequantize(expression, relax.const(scale), relax.const(0, "int32"), axis=0)


def activated(converter: Conversion, product: Any, target: TensorWrapper, activation: int) -> Any:
    if not target.qnn_params:
        return converter.convert_fused_activation_function(product, activation)
    return converter.convert_qnn_fused_activation_function(
        converter.quantize(product, target),
        activation,
        float(target.qnn_params["scale"].value.numpy()),
        int(target.qnn_params["zero_point"].value.numpy()),
        converter.get_tensor_type_str(target.tensor.Type()),
    )


def convert_quantised_product(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert a quantised BATCH_MATMUL, which TVM takes for one of floats."""
    first, second = converter.get_input_tensors(operator)
    (target,) = converter.get_output_tensors(operator)
    options = tflite.BatchMatMulOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    factors = []
    for tensor, turned in ((first, options.AdjX()), (second, options.AdjY())):
        value = converter.dequantize(converter.get_tensor_expr(tensor), tensor)
        rank = len(converter.get_tensor_shape(tensor))
        order = [*range(rank - 2), rank - 1, rank - 2]
        factors.append(relax.op.permute_dims(value, order) if turned else value)
    return converter.quantize(relax.op.matmul(*factors), target)


def convert_softmax(converter: Conversion, operator: tflite.Operator) -> Any:
    """Convert SOFTMAX. TVM leaves out beta, the factor in front of the exponent."""
    (source,) = converter.get_input_tensors(operator)
    (target,) = converter.get_output_tensors(operator)
    options = tflite.SoftmaxOptions()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    data = converter.get_expr(source.tensor_idx)
    dtype = "float32"
    if source.qnn_params:
        data = converter.dequantize(data, source)
    else:
        dtype = str(data.ty.dtype)
    if options.Beta() != 1.0:
        data = relax.op.multiply(data, relax.const(options.Beta(), dtype))
    result = relax.op.nn.softmax(data, axis=-1)
    return converter.quantize(result, target) if target.qnn_params else result
