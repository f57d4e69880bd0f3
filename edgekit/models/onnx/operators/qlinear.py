"""onnxruntime's quantised operators: dequantise, the float operator, quantise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Converter, Node, Outputs
from edgekit.models.onnx.operators.activation import ACTIVATION
from edgekit.models.onnx.operators.common import Converters, like
from edgekit.models.onnx.operators.elementwise import ELEMENTWISE
from edgekit.models.onnx.operators.integer import factor_of, whole_product
from edgekit.models.onnx.operators.layout import LAYOUT
from edgekit.models.onnx.operators.pooling import POOLING
from edgekit.models.onnx.operators.quantization import QUANTIZATION, dequantize, quantize
from edgekit.models.onnx.operators.reduction import REDUCTION
from edgekit.models.onnx.values import Tensor, Value, as_expr, dtype_of, is_known, shape_of

op = relax.op

FLOAT_OPSET = 17
"""The version of ONNX whose float operators these are."""


@dataclass(frozen=True)
class _Kind:
    """A float operator, and the places of its operands, whose scales and zero points follow."""

    operator: str
    convert: Converter
    operands: tuple[int, ...]
    result: int
    """The place of the result's scale and zero point."""


def _real(node: Node, position: int) -> Tensor:
    value, scale = node.value(position), node.value(position + 1)
    return node.emit(dequantize(node, value, scale, node.value(position + 2)))


def _zero(node: Node, position: int, dtype: str) -> Tensor:
    return node.value(position) if node.has(position) else np.zeros((), dtype)


def _around(kind: _Kind) -> Converter:
    def convert(node: Node) -> Outputs:
        stored = dtype_of(node.value(kind.operands[0]))
        reals = [_real(node, position) for position in kind.operands]
        result = _float_result(node, kind, reals)
        zero = _zero(node, kind.result + 1, stored)
        return quantize(node, result, node.value(kind.result), zero)

    return convert


def _float_result(node: Node, kind: _Kind, inputs: Sequence[Value]) -> Tensor:
    """Convert the float operator of these; images with channels last are turned around it."""
    last = bool(node.get("channels_last", 0))
    if last:
        rank = len(shape_of(inputs[0]))
        turned = op.permute_dims(inputs[0], [0, rank - 1, *range(1, rank - 1)])
        inputs = [node.emit(turned)]
    opset = node.get("opset", FLOAT_OPSET)
    view = replace(node, operator=kind.operator, inputs=tuple(inputs), opset=opset)
    made = kind.convert(view)
    result = made[0] if isinstance(made, list) else made
    result = node.emit(as_expr(result))
    if not last:
        return result
    return node.emit(op.permute_dims(result, [0, *range(2, rank), 1]))


def _concat(node: Node) -> Outputs:
    reals = [_real(node, position) for position in range(2, len(node.inputs), 3)]
    kind = _Kind("Concat", LAYOUT["Concat"], (), 0)
    return quantize(node, _float_result(node, kind, reals), node.value(0), node.value(1))


def _where(node: Node) -> Outputs:
    kind = _Kind("Where", ELEMENTWISE["Where"], (), 7)
    inputs = [node.value(0), _real(node, 1), _real(node, 4)]
    return quantize(node, _float_result(node, kind, inputs), node.value(7), node.value(8))


def _gemm(node: Node) -> Outputs:
    """Multiply in integers, add an int32 bias, and scale the sums; floats without a scale."""
    inputs = list(node.inputs)
    for position, name in ((0, "transA"), (3, "transB")):
        if node.get(name, 0):
            value = node.value(position)
            inputs[position] = (
                np.ascontiguousarray(value.T)
                if is_known(value)
                else node.emit(op.permute_dims(value, [1, 0]))
            )
    view = replace(node, inputs=tuple(inputs))
    sums = whole_product(view, (0, 2), (3, 5))
    if node.has(6):
        sums = node.emit(op.add(sums, node.expr(6)))
    scale = node.emit(op.multiply(factor_of(node, 1), factor_of(node, 4)))
    if node.get("alpha", 1.0) != 1:
        scale = node.emit(op.multiply(scale, like(node.get("alpha"), scale)))
    real = node.emit(op.multiply(op.astype(sums, "float32"), scale))
    if not node.has(7):
        return real
    return quantize(node, real, node.value(7), _zero(node, 8, node.dtype(0)))


_ROWS: tuple[tuple[str, str, Converter, tuple[int, ...], int], ...] = (
    ("QLinearAdd", "Add", ELEMENTWISE["Add"], (0, 3), 6),
    ("QLinearMul", "Mul", ELEMENTWISE["Mul"], (0, 3), 6),
    ("QLinearSigmoid", "Sigmoid", ACTIVATION["Sigmoid"], (0,), 3),
    ("QLinearLeakyRelu", "LeakyRelu", ACTIVATION["LeakyRelu"], (0,), 3),
    ("QLinearAveragePool", "AveragePool", POOLING["AveragePool"], (0,), 3),
    ("QLinearGlobalAveragePool", "GlobalAveragePool", POOLING["GlobalAveragePool"], (0,), 3),
    ("QLinearReduceMean", "ReduceMean", REDUCTION["ReduceMean"], (0,), 3),
    ("QLinearSoftmax", "Softmax", ACTIVATION["Softmax"], (0,), 3),
)
QLINEAR: Converters = {
    **{row[0]: _around(_Kind(*row[1:])) for row in _ROWS},
    "DequantizeLinear": QUANTIZATION["DequantizeLinear"],
    "QGemm": _gemm,
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QuantizeLinear": QUANTIZATION["QuantizeLinear"],
}
