"""Sorting and running sums as loop nests, for every operator that has them.

TVM sorts with functions that only its full library has; the small runtime on devices lacks them.
These loops are part of the model's own code. Those that sort merge sorted runs, which keeps equal
elements in their order, and put NaN above all numbers, as numpy and PyTorch do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from edgekit.compiler.rewriting import operator_of, rewriting
from edgekit.compiler.running import running_of

_PARALLEL_FROM = 1 << 14
"""The number of elements from which the rows are shared among threads."""
_VALUES, _ORDER = 0, 1
_WIDER = {"float16": "float32", "bfloat16": "float32", "bool": "uint8"}
"""Types that are compared in another."""


def sort_in_loops() -> Any:
    return rewriting("SortInLoops", _Rewriter)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        replace = _REPLACED.get(operator_of(call))
        return call if replace is None else replace(self.builder_, call)


def _sort(block: Any, call: Any) -> Any:
    extent = _extent(call.args[0], int(call.attrs.axis))
    return _sorted(block, call, extent, bool(call.attrs.descending), "int32")(_VALUES)


def _argsort(block: Any, call: Any) -> Any:
    extent = _extent(call.args[0], int(call.attrs.axis))
    dtype = str(call.attrs.dtype)
    return _sorted(block, call, extent, bool(call.attrs.descending), dtype)(_ORDER)


def _topk(block: Any, call: Any) -> Any:
    count = int(call.attrs.k)
    if count < 1:
        count = _extent(call.args[0], int(call.attrs.axis))
    found = _sorted(block, call, count, bool(call.attrs.largest), str(call.attrs.dtype))
    wanted = str(call.attrs.ret_type)
    if wanted == "both":
        return relax.Tuple([found(_VALUES), found(_ORDER)])
    return found(_VALUES if wanted == "values" else _ORDER)


def _running(identity: int, combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def replace(block: Any, call: Any) -> Any:
        axis, value = call.attrs.axis, call.args[0]
        if axis is None:
            value = block.emit(relax.op.reshape(value, (-1,)))
        place = int(axis or 0) % len(value.ty.shape.values)
        dtype = str(call.ty.dtype)
        return block.emit_te(
            lambda given: running_of(
                given, place, dtype, identity, combine, exclusive=bool(call.attrs.exclusive)
            ),
            value,
            primfunc_name_hint="running",
        )

    return replace


def _extent(value: Any, axis: int) -> int:
    return int(value.ty.shape.values[axis])


def _sorted(
    block: Any, call: Any, count: int, descending: bool, dtype: str
) -> Callable[[int], Any]:
    """Return a function that sorts along the axis of `call`. It gives the first `count` elements in
    order, or their original places."""
    value = call.args[0]
    shape = [int(extent) for extent in value.ty.shape.values]
    last = len(shape) - 1
    axis = int(call.attrs.axis) % len(shape)
    order = list(range(len(shape)))
    order[axis], order[last] = last, axis
    swapped = [shape[place] for place in order]
    if axis != last:
        value = block.emit(relax.op.permute_dims(value, order))
    if len(shape) != 2:
        value = block.emit(relax.op.reshape(value, (math.prod(swapped[:-1]), swapped[-1])))
    both = block.emit_te(_rows_in_order, value, count, descending, dtype, primfunc_name_hint="sort")

    def part(place: int) -> Any:
        found = block.emit(relax.TupleGetItem(both, place))
        if len(shape) != 2:
            found = block.emit(relax.op.reshape(found, (*swapped[:-1], count)))
        return found if axis == last else block.emit(relax.op.permute_dims(found, order))

    return part


def _rows_in_order(rows: Any, count: int, descending: bool, dtype: str) -> Any:
    lines, length = (int(extent) for extent in rows.shape)
    shape = (lines, count)

    def body(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            _merge_sort(ins[0], outs[0], outs[1], count, descending)
            return builder.get()

    buffers = [
        tirx.decl_buffer(shape, rows.dtype, "values", layout=None),
        tirx.decl_buffer(shape, dtype, "order", layout=None),
    ]
    if lines * length == 0 or count == 0:
        return [
            te.compute(shape, lambda *_: tirx.const(0, rows.dtype), name="values"),
            te.compute(shape, lambda *_: tirx.const(0, dtype), name="order"),
        ]
    return te.extern(
        [shape, shape],
        [rows],
        body,
        dtype=[rows.dtype, dtype],
        out_buffers=buffers,
        in_buffers=[tirx.decl_buffer(rows.shape, rows.dtype, "rows", layout=None)],
        name="sort",
        tag="edgekit_sort",
    )


def _merge_sort(rows: Any, values: Any, order: Any, count: int, descending: bool) -> None:
    """Sort the places of each row, by merging runs of 1, 2, 4, ... elements from one half of a
    buffer to the other."""
    lines, length = (int(extent) for extent in rows.shape)
    levels = max(0, (length - 1).bit_length())
    rows_of, values_of, order_of = (script.buffer_proxy(one) for one in (rows, values, order))
    loop = script.parallel if lines > 1 and lines * length >= _PARALLEL_FROM else script.serial

    def before(line: Any, first: Any, second: Any) -> Any:
        a, b = rows_of[line, first], rows_of[line, second]
        return _less(b, a, rows.dtype) if descending else _less(a, b, rows.dtype)

    with loop(0, lines) as line:
        places = script.buffer_proxy(script.alloc_buffer((2, length), "int32", scope="global"))
        size = script.buffer_proxy(script.alloc_buffer((1,), "int32", scope="local"))
        left = script.buffer_proxy(script.alloc_buffer((1,), "int32", scope="local"))
        right = script.buffer_proxy(script.alloc_buffer((1,), "int32", scope="local"))
        with script.serial(0, length) as place:
            places[0, place] = place
        half = script.buffer_proxy(script.alloc_buffer((1,), "int32", scope="local"))
        size[0] = tirx.const(1, "int32")
        half[0] = tirx.const(0, "int32")
        with script.serial(0, levels):
            run = size[0]
            source, target = half[0], 1 - half[0]
            with script.serial(0, tirx.truncdiv(length + 2 * run - 1, 2 * run)) as pair:
                start = pair * 2 * run
                middle, end = (
                    tirx.min(start + run, tirx.const(length, "int32")),
                    tirx.min(start + 2 * run, tirx.const(length, "int32")),
                )
                left[0] = start
                right[0] = middle
                with script.serial(0, end - start) as step:
                    # Both places are inside the row even when a run is exhausted, so both may be
                    # read.
                    from_left = places[source, tirx.min(left[0], middle - 1)]
                    from_right = places[source, tirx.min(right[0], end - 1)]
                    takes_right = tirx.all(
                        right[0] < end,
                        tirx.any(left[0] >= middle, before(line, from_right, from_left)),
                    )
                    with script.If(takes_right):
                        with script.Then():
                            places[target, start + step] = from_right
                            right[0] = right[0] + 1
                        with script.Else():
                            places[target, start + step] = from_left
                            left[0] = left[0] + 1
            size[0] = 2 * run
            half[0] = target
        with script.serial(0, count) as place:
            found = places[levels % 2, place]
            order_of[line, place] = tirx.Cast(order.dtype, found)
            values_of[line, place] = rows_of[line, found]


def _less(first: Any, second: Any, dtype: Any) -> Any:
    """Return whether one element comes before another in ascending order. NaN is the greatest."""
    wide = _WIDER.get(str(dtype), str(dtype))
    first, second = (tirx.Cast(wide, one) if wide != str(dtype) else one for one in (first, second))
    if not wide.startswith("float"):
        return first < second
    return tirx.any(first < second, tirx.all(tirx.isnan(second), tirx.Not(tirx.isnan(first))))


_REPLACED: Mapping[str, Callable[[Any, Any], Any]] = {
    "relax.sort": _sort,
    "relax.argsort": _argsort,
    "relax.cumprod": _running(1, operator.mul),
    "relax.cumsum": _running(0, operator.add),
    "relax.topk": _topk,
}
