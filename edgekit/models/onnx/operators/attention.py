"""The attention operators of com.microsoft, written out as products and a softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, like, reshape, take_at
from edgekit.models.onnx.operators.integer import factor_of, whole_product
from edgekit.models.onnx.operators.layout import split
from edgekit.models.onnx.values import Expr, as_expr, shape_of

op = relax.op
LOWEST = float(np.finfo("float32").min)


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values, (batch, heads, tokens, size)."""

    query: Expr
    key: Expr
    value: Expr

    def after(self, node: Node, past_key: Expr, past_value: Expr) -> Heads:
        """Return them with the keys and values of earlier tokens before them."""
        key = node.emit(op.concat([past_key, self.key], axis=2))
        return Heads(self.query, key, node.emit(op.concat([past_value, self.value], axis=2)))


def _in_heads(node: Node, value: Expr, heads: int) -> Expr:
    batch, tokens, width = shape_of(value)
    parts = node.emit(op.reshape(value, (batch, tokens, heads, width // heads)))
    return node.emit(op.permute_dims(parts, [0, 2, 1, 3]))


def _attended(node: Node, heads: Heads, masks: list[Expr]) -> Expr:
    """Return (batch, tokens, heads * size); masks are added to the scores."""
    batch, count, tokens, size = shape_of(heads.query)
    total, width = shape_of(heads.value)[2:]
    scale = node.get("scale", 0.0) or 1 / math.sqrt(size)
    turned = node.emit(op.permute_dims(heads.key, [0, 1, 3, 2]))
    scores = node.emit(op.matmul(heads.query, turned))
    scores = node.emit(op.multiply(scores, like(scale, scores)))
    for mask in masks:
        scores = node.emit(op.add(scores, mask))
    if node.get("unidirectional", 0):
        later = np.triu(np.ones((tokens, total), bool), 1 + total - tokens)
        scores = node.emit(op.where(as_expr(later), like(LOWEST, scores), scores))
    shares = node.emit(op.nn.softmax(scores, -1))
    mixed = node.emit(op.matmul(shares, heads.value))
    joined = node.emit(op.permute_dims(mixed, [0, 2, 1, 3]))
    return node.emit(op.reshape(joined, (batch, tokens, count * width)))


def _mask(node: Node, position: int, batch: int, total: int) -> list[Expr]:
    """Return what a mask of ends, of ones and zeros per token, or of pairs of tokens adds."""
    if not node.has(position):
        return []
    mask, shape = node.expr(position), node.shape(position)
    numbers = as_expr(np.arange(total, dtype="int32"))
    if shape in ((batch,), (2 * batch,)):
        ends = op.reshape(op.strided_slice(mask, [0], [0], [batch]), (batch, 1))
        kept = op.less(numbers, node.emit(op.astype(ends, "int32")))
        if shape != (batch,):
            starts = op.reshape(op.strided_slice(mask, [0], [batch], [2 * batch]), (batch, 1))
            begun = op.greater_equal(numbers, node.emit(op.astype(starts, "int32")))
            kept = op.logical_and(kept, begun)
    elif len(shape) in (2, 3) and shape[0] == batch and shape[-1] == total:
        kept = op.greater(mask, like(0, mask))
    else:
        raise RefusedError(
            f"edgekit does not know what a mask of shape {list(shape)} means",
            "export the model with a mask of shape (batch, tokens)",
        )
    kept = node.emit(kept)
    lines = shape_of(kept)[1] if len(shape) == 3 else 1
    filler = node.get("mask_filter_value", -10000.0)
    low, none = as_expr(np.array(filler, "float32")), as_expr(np.zeros((), "float32"))
    return [reshape(node.emit(op.where(kept, none, low)), (batch, 1, lines, total))]


def _with_past(node: Node, heads: Heads, position: int) -> tuple[Heads, Expr | None]:
    """Put an input of earlier keys and values before those of now; return what `present` is."""
    if node.get("past_present_share_buffer", 0):
        raise RefusedError("its past and present share a buffer", "export it without that option")
    if node.has(position):
        past = node.expr(position)
        earlier = [take_at(past, as_expr(np.array(i, "int64")), axis=0) for i in (0, 1)]
        heads = heads.after(node, *(node.emit(part) for part in earlier))
    if not node.wants(1):
        return heads, None
    both = [node.emit(op.expand_dims(part, 0)) for part in (heads.key, heads.value)]
    return heads, node.emit(op.concat(both, axis=0))


def _projected(node: Node, product: Expr, bias: int) -> list[Expr]:
    """Add the bias and split into queries, keys and values."""
    whole = node.emit(op.add(product, node.expr(bias))) if node.has(bias) else product
    width = shape_of(whole)[-1]
    sizes = tuple(node.get("qkv_hidden_sizes", ())) or (width // 3,) * 3
    return list(split(node, whole, 2, sizes))


def _merged(node: Node, product: Expr, mask: int, past: int, more: int | None) -> Outputs:
    if node.get("do_rotary", 0):
        raise RefusedError("it rotates its queries and keys itself", "export it without do_rotary")
    count = node.get("num_heads")
    heads = Heads(*(_in_heads(node, part, count) for part in _projected(node, product, 2)))
    heads, present = _with_past(node, heads, past)
    batch, total = shape_of(heads.query)[0], shape_of(heads.key)[2]
    masks = _mask(node, mask, batch, total)
    if more is not None and node.has(more):
        masks.append(node.expr(more))
    return [_attended(node, heads, masks), present]


def _attention(node: Node) -> Outputs:
    product = node.emit(op.matmul(node.expr(0), node.expr(1)))
    return _merged(node, product, 3, 4, 5)


def _quantised_attention(node: Node) -> Outputs:
    sums = node.emit(op.astype(whole_product(node, (0, 6), (1, 7)), "float32"))
    scale = node.emit(op.multiply(factor_of(node, 3), factor_of(node, 4)))
    return _merged(node, node.emit(op.multiply(sums, scale)), 5, 8, None)


def _multi_head_attention(node: Node) -> Outputs:
    heads = _separate(node, node.get("num_heads"))
    if node.has(6):
        heads = heads.after(node, node.expr(6), node.expr(7))
    if node.has(8) or node.has(9):
        raise RefusedError("its past and present share a buffer", "export it without that option")
    if node.wants(3):
        raise RefusedError("it gives its scores as an output", "export it without them")
    batch, total = shape_of(heads.query)[0], shape_of(heads.key)[2]
    masks = _mask(node, 4, batch, total)
    if node.has(5):
        masks.append(node.expr(5))
    present = [heads.key, heads.value] if node.wants(1) or node.wants(2) else []
    return [_attended(node, heads, masks), *present]


def _separate(node: Node, count: int) -> Heads:
    """Return the heads of inputs that lie apart, or packed as (batch, tokens, heads, parts, …)."""
    bias: list[Expr | None] = [None, None, None]
    query, packed = node.expr(0), len(node.shape(0)) == 5
    if packed:
        query, key, value = (_part(node, query, number, 3) for number in range(3))
    elif len(node.shape(1)) == 5:
        key, value = (_part(node, node.expr(1), number, 2) for number in range(2))
    else:
        key, value = node.expr(1), node.expr(2)
    if node.has(3):
        width = shape_of(query)[-1]
        rest = node.shape(3)[0] - 2 * width
        row = node.emit(op.expand_dims(node.expr(3), 0))
        bias = list(split(node, row, 1, (width, width, rest)))
    parts = []
    for part, added in zip((query, key, value), bias, strict=True):
        if len(shape_of(part)) == 4:
            parts.append(part)
            continue
        shifted = part if added is None else node.emit(op.add(part, added))
        parts.append(_in_heads(node, shifted, count))
    return Heads(*parts)


def _part(node: Node, packed: Expr, number: int, count: int) -> Expr:
    batch, tokens, heads, _, size = shape_of(packed)
    part = split(node, packed, 3, (1,) * count)[number]
    return node.emit(op.reshape(part, (batch, tokens, heads * size)))


def _rotary_embedding(node: Node) -> Outputs:
    """Rotate pairs of each head's numbers by angles that depend on the token's place."""
    value, given = node.expr(0), node.shape(0)
    half = node.shape(2)[1]
    if len(given) == 3:
        size = given[2] // (node.get("num_heads", 0) or given[2] // (2 * half))
        value = _in_heads(node, value, given[2] // size)
    batch, count, tokens, size = shape_of(value)
    places = node.expr(1)
    if node.shape(1) in ((), (1,)):
        places = op.add(places, as_expr(np.arange(tokens, dtype="int64")))
    places = node.emit(op.broadcast_to(places, (batch, tokens)))
    cosine, sine = (
        node.emit(op.expand_dims(take_at(node.expr(i), places, axis=0), 1)) for i in (2, 3)
    )
    rotated, rest = (
        split(node, value, 3, (2 * half, size - 2 * half))
        if size > 2 * half
        else (
            value,
            None,
        )
    )
    shape = (batch, count, tokens, *((half, 2) if node.get("interleaved", 0) else (2, half)))
    axis = 4 if node.get("interleaved", 0) else 3
    pairs = node.emit(op.reshape(rotated, shape))
    real, other = (node.emit(op.squeeze(part, [axis])) for part in split(node, pairs, axis, (1, 1)))
    turned = [
        op.subtract(op.multiply(real, cosine), op.multiply(other, sine)),
        op.add(op.multiply(real, sine), op.multiply(other, cosine)),
    ]
    whole = node.emit(op.concat([node.emit(op.expand_dims(t, axis)) for t in turned], axis=axis))
    result = node.emit(op.reshape(whole, (batch, count, tokens, 2 * half)))
    if rest is not None:
        result = node.emit(op.concat([result, rest], axis=3))
    if len(given) == 3:
        result = node.emit(op.permute_dims(result, [0, 2, 1, 3]))
        result = node.emit(op.reshape(result, given))
    return result


def _embed_layer_normalization(node: Node) -> Outputs:
    """Add the embeddings of words, places and segments, and normalise them."""
    batch, tokens = node.shape(0)
    total = node.emit(take_at(node.expr(2), node.expr(0), axis=0))
    places = as_expr(np.arange(tokens, dtype="int32")[None])
    places = node.expr(8) if node.has(8) else places
    total = node.emit(op.add(total, take_at(node.expr(3), places, axis=0)))
    if node.has(1):
        total = node.emit(op.add(total, take_at(node.expr(4), node.expr(1), axis=0)))
    normal = op.nn.layer_norm(total, node.expr(5), node.expr(6), [-1], node.get("epsilon", 1e-12))
    lengths = np.zeros((batch,), "int32")
    if node.has(7):
        mask = node.expr(7)
        lengths = node.emit(op.sum(op.astype(mask, "int32"), [1]))
    return [node.emit(normal), lengths, total]


ATTENTION: Converters = {
    "Attention": _attention,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _quantised_attention,
    "RotaryEmbedding": _rotary_embedding,
}
