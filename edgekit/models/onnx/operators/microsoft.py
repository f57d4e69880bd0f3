"""The com.microsoft operators that onnxruntime's optimiser leaves in saved models."""

from __future__ import annotations

from tvm import relax

from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import Converters, like
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
    "FusedMatMul": _fused_matmul,
    "Gelu": lambda node: op.nn.gelu(node.expr(0)),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
}
