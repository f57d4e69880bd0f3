"""Matrix products."""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs
from edgekit.models.onnx.operators.common import Converters, cast, like, take_at, wide
from edgekit.models.onnx.values import Expr, as_expr, dtype_of, is_float, is_known, shape_of

op = relax.op


def _matmul(node: Node) -> Outputs:
    return product(node, node.expr(0), node.expr(1))


def product(node: Node, left: Expr, right: Expr) -> Expr:
    """Multiply, with sums in float32 for narrower inputs: long sums would lose accuracy."""
    result = node.emit(op.matmul(wide(node, left), wide(node, right)))
    return cast(result, dtype_of(left))


def _gemm(node: Node) -> Outputs:
    """Emit `matmul` plus a bias; constant weights are transposed and scaled on import."""
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    left = node.expr(0)
    if node.get("transA", 0):
        left = op.permute_dims(left, [1, 0])
    right = node.value(1)
    if is_known(right):
        right = right.T if node.get("transB", 0) else right
        if alpha != 1 and is_float(str(right.dtype)):
            right, alpha = (right * np.array(alpha, np.float64)).astype(right.dtype), 1.0
        right = as_expr(np.ascontiguousarray(right))
    elif node.get("transB", 0):
        right = op.permute_dims(right, [1, 0])
    result = node.emit(product(node, node.emit(left), node.emit(right)))
    if alpha != 1:
        result = node.emit(op.multiply(result, like(alpha, result)))
    if not node.has(2):
        return result
    bias = node.value(2)
    if beta != 1 and is_known(bias):
        bias = (bias * np.array(beta, np.float64)).astype(bias.dtype)
    elif beta != 1:
        bias = op.multiply(bias, like(beta, bias))
    return op.add(result, as_expr(bias) if is_known(bias) else bias)


def _einsum(node: Node) -> Outputs:
    """Permute each pair of operands to (batch, rows, inner), and multiply them as matrices."""
    text = node.get("equation").replace(" ", "")
    inputs = [node.expr(i) for i in range(len(node.inputs))]
    terms, output = _explicit(text, [len(shape_of(value)) for value in inputs])
    value, labels = _diagonal(node, inputs[0], terms[0])
    for i in range(1, len(inputs)):
        other, other_labels = _diagonal(node, inputs[i], terms[i])
        later = set(output).union(*terms[i + 1 :])
        value, labels = _contract(node, (value, labels), (other, other_labels), later)
    gone = [i for i, label in enumerate(labels) if label not in output]
    if gone:
        value = node.emit(op.sum(value, gone))
        labels = [label for label in labels if label in output]
    order = [labels.index(label) for label in output]
    return op.permute_dims(value, order) if order != sorted(order) else value


def _explicit(text: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Return the labels of each operand and the output; dots and a missing output are filled in."""
    left, arrow, right = text.partition("->")
    terms = []
    for term, rank in zip(left.split(","), ranks, strict=True):
        dots = rank - len(term.replace("...", "")) if "..." in term else 0
        terms.append(_spelled(term, dots))
    most = max(sum(label.isdigit() for label in term) for term in terms)
    if arrow:
        return terms, _spelled(right, most if "..." in right else 0)
    letters = [label for term in terms for label in term]
    once = sorted({x for x in letters if letters.count(x) == 1 and not x.isdigit()})
    return terms, [str(most - 1 - i) for i in range(most)] + once


def _spelled(term: str, dots: int) -> list[str]:
    """Replace the dots by labels from the right, so that operands of different ranks align."""
    before, _, after = term.partition("...")
    return [*before, *(str(dots - 1 - i) for i in range(dots)), *after]


def _diagonal(node: Node, value: Expr, labels: list[str]) -> tuple[Expr, list[str]]:
    """Take the diagonal for a label that occurs twice in one operand."""
    labels = list(labels)
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            extent = shape_of(value)[first]
            order = [i for i in range(len(labels)) if i not in (first, second)]
            moved = op.permute_dims(value, [first, second, *order])
            rest = [shape_of(value)[i] for i in order]
            flat = op.reshape(moved, (extent * extent, *rest))
            picked = as_expr(np.arange(extent, dtype=np.int64) * (extent + 1))
            value = node.emit(take_at(flat, picked, axis=0))
            labels = [label, *(labels[i] for i in order)]
    return value, labels


def _contract(
    node: Node, left: tuple[Expr, list[str]], right: tuple[Expr, list[str]], later: set[str]
) -> tuple[Expr, list[str]]:
    (a, a_labels), (b, b_labels) = left, right
    a, a_labels = _summed(node, a, a_labels, later | set(b_labels))
    b, b_labels = _summed(node, b, b_labels, later | set(a_labels))
    shared = [x for x in a_labels if x in b_labels]
    batch = [x for x in shared if x in later]
    inner = [x for x in shared if x not in later]
    rows = [x for x in a_labels if x not in shared]
    columns = [x for x in b_labels if x not in shared]
    extents = dict(zip(b_labels, shape_of(b), strict=True))
    for label, extent in zip(a_labels, shape_of(a), strict=True):
        extents[label] = max(extent, extents.get(label, 1))
    a = _arranged(node, a, a_labels, [batch, rows, inner], extents)
    b = _arranged(node, b, b_labels, [batch, inner, columns], extents)
    product = node.emit(op.matmul(a, b))
    labels = [*batch, *rows, *columns]
    return node.emit(op.reshape(product, tuple(extents[x] for x in labels))), labels


def _summed(node: Node, value: Expr, labels: list[str], kept: set[str]) -> tuple[Expr, list[str]]:
    gone = [i for i, label in enumerate(labels) if label not in kept]
    if not gone:
        return value, labels
    return node.emit(op.sum(value, gone)), [x for x in labels if x in kept]


def _arranged(
    node: Node, value: Expr, labels: list[str], groups: list[list[str]], extents: dict[str, int]
) -> Expr:
    """Return the value as a stack of matrices, one axis per group of labels."""
    order = [label for group in groups for label in group]
    moved = op.permute_dims(value, [labels.index(label) for label in order]) if order else value
    full = op.broadcast_to(node.emit(moved), tuple(extents[label] for label in order))
    sizes = tuple(int(np.prod([extents[x] for x in group], dtype=np.int64)) for group in groups)
    return node.emit(op.reshape(full, sizes))


LINEAR: Converters = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
