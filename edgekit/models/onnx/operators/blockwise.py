"""Weights in blocks of a few bits, each block with a scale and a zero point of its own."""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, cast, positive_axis, take_at
from edgekit.models.onnx.operators.linear import product
from edgekit.models.onnx.values import Expr, as_expr, dtype_of

op = relax.op


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers of a last axis that packs several into a byte, the lowest bits first."""
    if bits not in (2, 4, 8):
        raise RefusedError(f"its weights have {bits} bits", "quantise the model to 4 or 8 bits")
    shifts = np.arange(0, 8, bits, dtype="uint8")
    apart = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(apart.reshape(*packed.shape[:-1], -1))


def _matmul_nbits(node: Node) -> Outputs:
    """Multiply by weights that are known in blocks. They become floats once, on import: a product
    of floats is faster than one that dequantises, and gives the sums of the model's meaning."""
    if node.has(4):
        raise RefusedError(
            "it regroups its weights by g_idx", "quantise the model without activation order"
        )
    if node.get("weight_prepacked", 0):
        raise RefusedError("its weights are packed for one runtime", "export them unpacked")
    bits, block = node.get("bits", 4), node.get("block_size")
    columns, depth = node.get("N"), node.get("K")
    blocks = -(-depth // block)
    stored = unpacked(node.known(1).reshape(columns, blocks, -1), bits).astype("float32")
    scales = node.known(2).reshape(columns, blocks, 1).astype("float32")
    weight = (stored - _zeros(node, bits, (columns, blocks))) * scales
    matrix = np.ascontiguousarray(weight.reshape(columns, -1)[:, :depth].T)
    value = node.expr(0)
    wide = node.emit(cast(value, "float32"))
    result = node.emit(product(node, wide, as_expr(matrix)))
    if node.has(5):
        result = node.emit(op.add(result, cast(node.expr(5), "float32")))
    return cast(result, dtype_of(value))


def _zeros(node: Node, bits: int, shape: tuple[int, int]) -> np.ndarray:
    """Return each block's zero point: packed as the weights are, as numbers, or the middle."""
    if not node.has(3):
        return np.full((*shape, 1), float(1 << (bits - 1)), "float32")
    given = node.known(3)
    if given.dtype == np.uint8:
        given = unpacked(given.reshape(shape[0], -1), bits)[:, : shape[1]]
    return given.reshape(*shape, 1).astype("float32")


def _gather_block_quantized(node: Node) -> Outputs:
    """Take rows of integers, and dequantise what was taken."""
    data, rank = node.known(0), len(node.shape(0))
    blocks = positive_axis(node.get("quantize_axis", 1), rank)
    along = positive_axis(node.get("gather_axis", 0), rank)
    block, bits, zeros = node.get("block_size", 128), node.get("bits", 4), node.known_or(3, None)
    if along == blocks or not block:
        raise RefusedError("it takes along the axis of its blocks")
    if data.dtype == np.uint8 and (bits != 8 or zeros is None):
        middle = 1 << (bits - 1)
        if blocks != rank - 1:
            raise RefusedError("its numbers are not packed along the last axis")
        data = unpacked(data, bits)
        zeros = unpacked(zeros, bits) if zeros is not None else np.array(middle)
    scales = node.known(2)
    if zeros is not None and zeros.ndim:
        zeros = zeros[tuple(slice(extent) for extent in scales.shape)]
    whole = np.asarray(data.astype("int16"))
    indices = _counted(node, whole.shape[along])
    place = blocks if blocks < along else blocks + len(node.shape(1)) - 1
    numbers = as_expr((np.arange(whole.shape[blocks]) // block).astype("int64"))

    def spread(known: np.ndarray) -> Expr:
        taken = node.emit(take_at(as_expr(known), indices, axis=along))
        return node.emit(take_at(taken, numbers, axis=place))

    stored = node.emit(take_at(as_expr(_narrow(whole)), indices, axis=along))
    real = node.emit(op.astype(stored, "float32"))
    if zeros is not None:
        zero = spread(zeros.astype("float32")) if zeros.ndim else as_expr(zeros.astype("float32"))
        real = node.emit(op.subtract(real, zero))
    result = node.emit(op.multiply(real, spread(scales.astype("float32"))))
    return cast(result, str(scales.dtype))


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return whole numbers in a byte each."""
    return values.astype("uint8" if values.max(initial=0) > 127 else "int8")


def _counted(node: Node, extent: int) -> Expr:
    """Return the indices, with those that count from the end made positive."""
    indices = node.expr(1)
    whole = as_expr(np.array(extent, dtype_of(indices)))
    none = as_expr(np.array(0, dtype_of(indices)))
    return node.emit(op.where(op.less(indices, none), op.add(indices, whole), indices))


BLOCKWISE: Converters = {
    "GatherBlockQuantized": _gather_block_quantized,
    "MatMulNBits": _matmul_nbits,
}
