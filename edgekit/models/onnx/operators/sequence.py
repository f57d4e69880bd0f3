"""Sequences and optionals, which vanish because their lengths are always known."""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgekit.models.onnx.node import Node, Outputs, RefusedError
from edgekit.models.onnx.operators.common import Converters, known_scalar, positive_axis, reshape
from edgekit.models.onnx.operators.layout import slice_axes
from edgekit.models.onnx.values import Value, as_expr

op = relax.op


def _items(node: Node) -> tuple[Value, ...]:
    value = node.value(0)
    if not isinstance(value, tuple):
        raise RefusedError("its input is not a sequence")
    return value


def _place(node: Node, position: int, count: int) -> int:
    index = int(known_scalar(node.known(position)))
    return index + count if index < 0 else index


def _at(node: Node) -> Outputs:
    items = _items(node)
    return items[_place(node, 1, len(items))]


def _erase(node: Node) -> Outputs:
    items = _items(node)
    gone = _place(node, 1, len(items)) if node.has(1) else len(items) - 1
    return (*items[:gone], *items[gone + 1 :])


def _insert(node: Node) -> Outputs:
    items = _items(node)
    place = _place(node, 2, len(items)) if node.has(2) else len(items)
    return (*items[:place], node.value(1), *items[place:])


def _concat(node: Node) -> Outputs:
    items = [as_expr(item) for item in _items(node)]
    axis = node.get("axis")
    if node.get("new_axis", 0):
        items = [op.expand_dims(item, axis) for item in items]
    return op.concat(items, axis=axis)


def _split(node: Node) -> Outputs:
    value, shape = node.expr(0), node.shape(0)
    axis = positive_axis(node.get("axis", 0), len(shape))
    keep = True
    if not node.has(1):
        sizes, keep = [1] * shape[axis], bool(node.get("keepdims", 1))
    elif node.known(1).ndim == 0:
        size = int(known_scalar(node.known(1)))
        sizes = [min(size, shape[axis] - start) for start in range(0, shape[axis], size)]
    else:
        sizes = [int(size) for size in node.known(1)]
    items, start = [], 0
    for size in sizes:
        item = node.emit(slice_axes(node, value, {axis: (start, start + size, 1)}))
        if not keep:
            item = node.emit(reshape(item, tuple(e for i, e in enumerate(shape) if i != axis)))
        items.append(item)
        start += size
    return tuple(items)


def _optional_element(node: Node) -> Outputs:
    if node.value(0) is None:
        raise RefusedError("it takes the element of an empty optional")
    return node.value(0)


SEQUENCE: Converters = {
    "ConcatFromSequence": _concat,
    "Optional": lambda node: node.value(0),
    "OptionalGetElement": _optional_element,
    "OptionalHasElement": lambda node: np.array(node.value(0) is not None),
    "SequenceAt": _at,
    "SequenceConstruct": lambda node: tuple(node.inputs),
    "SequenceEmpty": lambda node: (),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda node: np.array(len(_items(node)), np.int64),
    "SplitToSequence": _split,
}
