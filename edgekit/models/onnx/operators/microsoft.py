"""The com.microsoft operators that onnxruntime's optimiser leaves in saved models."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from edgekit.models.onnx.node import Converter, Node, Outputs, RefusedError
from edgekit.models.onnx.operators.activation import ACTIVATION
from edgekit.models.onnx.operators.common import Converters, like
from edgekit.models.onnx.operators.convolution import CONVOLUTION
from edgekit.models.onnx.operators.elementwise import ELEMENTWISE
from edgekit.models.onnx.operators.linear import LINEAR
from edgekit.models.onnx.values import Expr, as_expr, is_known, shape_of

op = relax.op


def _bias_gelu(node: Node) -> Outputs:
    return op.nn.gelu(op.add(node.expr(0), node.expr(1)))


def _fast_gelu(node: Node) -> Outputs:
    value = node.expr(0)
    return op.nn.gelu_tanh(op.add(value, node.expr(1)) if node.has(1) else value)


def _quick_gelu(node: Node) -> Outputs:
    value = node.expr(0)
    scaled = op.multiply(value, like(node.get("alpha", 1.702), value))
    return op.multiply(value, op.sigmoid(scaled))


def _skip_layer_normalization(node: Node) -> Outputs:
    """Add two tensors and a bias, then normalise over the last axis."""
    total = op.add(node.expr(0), node.expr(1))
    if node.has(4):
        total = op.add(total, node.expr(4))
    total = node.emit(total)
    scale = node.expr(2)
    shift = node.expr(3) if node.has(3) else op.zeros(shape_of(scale), "float32")
    epsilon = node.get("epsilon", 1e-12)
    normal = node.emit(op.nn.layer_norm(total, scale, shift, [-1], epsilon))
    return [normal, None, None, total]


def _skip_simplified_layer_normalization(node: Node) -> Outputs:
    total = op.add(node.expr(0), node.expr(1))
    if node.has(3):
        total = op.add(total, node.expr(3))
    total = node.emit(total)
    return [_root_mean_square(node, total, 2), None, None, total]


def _root_mean_square(node: Node, value: Expr, scale: int) -> Expr:
    """Normalise over the last axis, without a mean."""
    epsilon = like(node.get("epsilon", 1e-5), value)
    squares = op.mean(op.multiply(value, value), [-1], keepdims=True)
    root = node.emit(op.sqrt(op.add(squares, epsilon)))
    return node.emit(op.multiply(op.divide(value, root), node.expr(scale)))


def _fused(operator: str, convert: Converter) -> Converter:
    """Return the converter of an operator with an activation, and perhaps a sum before it."""

    def converted(node: Node) -> Outputs:
        result = node.emit(as_expr(convert(replace(node, operator=operator, opset=17))))
        if operator == "Conv" and node.has(3):
            result = node.emit(op.add(result, node.expr(3)))
        name = node.get("activation", "")
        if not name:
            return result
        numbers = tuple(node.get("activation_params", ()))
        given = dict(zip(("alpha", "beta"), numbers, strict=False))
        for key in ("alpha", "beta"):
            if f"activation_{key}" in node.attributes:
                given[key] = node.get(f"activation_{key}")
        if name == "Clip":
            return op.clip(result, *numbers)
        if name not in ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"):
            raise RefusedError(f"there is no activation {name!r}")
        activate = {**ACTIVATION, **ELEMENTWISE}[name]
        return activate(replace(node, operator=name, inputs=(result,), attributes=given))

    return converted


def _fused_matmul(node: Node) -> Outputs:
    left, right = (
        _turned(node, position, bool(node.get(name, 0)))
        for position, name in ((0, "transA"), (1, "transB"))
    )
    product = op.matmul(left, right)
    alpha = node.get("alpha", 1.0)
    if alpha == 1:
        return product
    product = node.emit(product)
    return op.multiply(product, like(alpha, product))


def _turned(node: Node, position: int, transpose: bool) -> Expr:
    value, rank = node.value(position), len(node.shape(position))
    if not transpose or rank < 2:
        return node.expr(position)
    if is_known(value):
        return as_expr(value.swapaxes(-1, -2).copy())
    return op.permute_dims(value, [*range(rank - 2), rank - 1, rank - 2])


MICROSOFT: Converters = {
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused("Conv", CONVOLUTION["Conv"]),
    "FusedGemm": _fused("Gemm", LINEAR["Gemm"]),
    "FusedMatMul": _fused_matmul,
    "Gelu": lambda node: op.nn.gelu(node.expr(0)),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
}
SIMPLIFIED: Converters = {
    "SimplifiedLayerNormalization": lambda node: _root_mean_square(node, node.expr(0), 1)
}
"""onnxruntime's optimiser leaves this one in ONNX's own domain."""
