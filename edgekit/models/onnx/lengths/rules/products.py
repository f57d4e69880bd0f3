"""Products of matrices: a dimension that is summed over is filled with zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx import TensorProto

from edgekit.models.onnx.lengths import buffers
from edgekit.models.onnx.lengths.extents import Size, same
from edgekit.models.onnx.lengths.rules.elementwise import broadcast, rooms_of
from edgekit.models.onnx.lengths.step import Rules, Step
from edgekit.models.onnx.lengths.values import UnfixedError, Value

_FLOATS = frozenset(
    map(int, (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16))
)


def contracted(
    step: Step, pairs: Sequence[tuple[Value, int]], fills: Sequence[Value | int] = (0, 0)
) -> list[Value]:
    """Fill a dimension that several values share and that is summed over."""
    writer = step.writer
    values = [value for value, _ in pairs]
    sizes = [value.sizes[axis] for value, axis in pairs]
    for size in sizes[1:]:
        if not same(sizes[0], size):
            raise UnfixedError(f"it multiplies a dimension of {sizes[0]} with one of {size}")
    room = min(value.buffer[axis] for value, axis in pairs)
    values = [
        buffers.fitted(writer, value, axis, room)
        for value, (_, axis) in zip(values, pairs, strict=True)
    ]
    # A product with zero is zero for whole numbers: one factor is enough.
    needed = len(values) if values[0].element in _FLOATS else 1
    return [
        buffers.masked(writer, value, [axis], fill) if i < needed else value
        for i, (value, (_, axis), fill) in enumerate(zip(values, pairs, fills, strict=True))
    ]


def _product(step: Step, first: int, second: int, points: tuple[int, int] | None) -> Value:
    a, b = step.value(first), step.value(second)
    a_axis, b_axis = a.rank - 1, max(b.rank - 2, 0)
    fills = [_point(step, points and points[i], axis) for i, axis in enumerate((a_axis, b_axis))]
    a, b = contracted(step, ((a, a_axis), (b, b_axis)), fills)
    shape: tuple[Size, ...] = ()
    room: tuple[int, ...] = ()
    if a.rank > 2 or b.rank > 2:
        wide = [value for value in (a, b) if value.rank > 2]
        values, shape = broadcast(step.writer, wide, behind=2)
        a, b = (values.pop(0) if value.rank > 2 else value for value in (a, b))
        rank = len(shape)
        room = rooms_of([value for value in (a, b) if value.rank > 2], rank + 2)[:rank]
    for value, axis in ((a, -2), (b, -1)):
        if value.rank > 1:
            shape, room = (*shape, value.sizes[axis]), (*room, value.buffer[axis])
    given = list(step.inputs)
    given[first], given[second] = a, b
    return step.shaped(step.again(*given)[0], shape, buffer=room)


def _point(step: Step, position: int | None, axis: int) -> Value | int:
    """Return the number that stands for zero."""
    if position is None or not step.has(position):
        return 0
    point = step.value(position)
    if math.prod(point.buffer) != 1:
        raise UnfixedError(f"its input {step.node.input[position]!r} has several zero points")
    return step.writer.emit("Reshape", point, step.writer.constant([], "int64"))


def _matmul(step: Step) -> Value:
    return _product(step, 0, 1, None)


def _integer_matmul(step: Step) -> Value:
    return _product(step, 0, 1, (2, 3)) if _summed(step, 0, 1) else _product(step, 0, 1, None)


def _quantised_matmul(step: Step) -> Value:
    return _product(step, 0, 3, (2, 5)) if _summed(step, 0, 3) else _product(step, 0, 3, None)


def _summed(step: Step, first: int, second: int) -> bool:
    a, b = step.value(first), step.value(second)
    return a.rank - 1 in a.padded or max(b.rank - 2, 0) in b.padded


def _gemm(step: Step) -> Value:
    a, b = step.value(0), step.value(1)
    rows, columns = int(step.get("transA", 0)), 1 - int(step.get("transB", 0))
    a, b = contracted(step, ((a, 1 - rows), (b, 1 - columns)))
    shape = (a.sizes[rows], b.sizes[columns])
    room = (a.buffer[rows], b.buffer[columns])
    rest = [_spread(step, step.value(2), shape, room)] if step.has(2) else []
    return step.shaped(step.again(a, b, *rest)[0], shape, buffer=room)


def _spread(step: Step, value: Value, shape: Sequence[Size], room: Sequence[int]) -> Value:
    """Give a value a buffer that broadcasts to another one."""
    for axis in range(value.rank):
        at = len(shape) - value.rank + axis
        if value.sizes[axis] == 1:
            continue
        if not same(value.sizes[axis], shape[at]):
            raise UnfixedError(f"it adds a dimension of {value.sizes[axis]} to one of {shape[at]}")
        value = buffers.fitted(step.writer, value, axis, room[at])
    return value


def _einsum(step: Step) -> Value:
    equation = step.get("equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if "." in equation:
        raise UnfixedError(f"its equation {equation!r} leaves dimensions open")
    if not arrow:
        result = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    values = [step.value(i) for i in range(len(terms))]
    sizes: dict[str, Size] = {}
    rooms: dict[str, int] = {}
    for letter in sorted(set(left) - {","}):
        places = [(i, axis, x) for i, term in enumerate(terms) for axis, x in enumerate(term)]
        at = [(i, axis) for i, axis, x in places if x == letter]
        found = [values[i].sizes[axis] for i, axis in at]
        sizes[letter] = next((size for size in found if size != 1), 1)
        wide = [(i, axis) for i, axis in at if values[i].sizes[axis] != 1]
        if not all(same(sizes[letter], values[i].sizes[axis]) for i, axis in wide):
            raise UnfixedError(f"dimensions {letter!r} of its inputs differ")
        rooms[letter] = min((values[i].buffer[axis] for i, axis in wide), default=1)
        for i, axis in wide:
            values[i] = buffers.fitted(step.writer, values[i], axis, rooms[letter])
            if letter not in result:
                values[i] = buffers.masked(step.writer, values[i], [axis])
    shape, room = [sizes[x] for x in result], [rooms[x] for x in result]
    return step.shaped(step.again(*values)[0], shape, buffer=room)


def _attention(step: Step) -> None:
    """Have it written out, where runtimes agree with ONNX's definition."""
    if step.wants(3) or (step.get("is_causal", 0) and step.has(4)):
        raise UnfixedError("runtimes differ in what it masks with keys of before")


PRODUCTS: Rules = {
    "Attention": _attention,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _integer_matmul,
    "QLinearMatMul": _quantised_matmul,
}
