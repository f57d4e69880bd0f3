"""A function of the module for each of several sizes: a run takes the smallest that holds its own.

All compute the same graph with the same weights; each has its own largest size, and with it
kernels of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from tvm import relax
from tvm.script.ir_builder import tirx as script

from edgekit.base.tensors import TensorSpec
from edgekit.compiler.loops import emit_branch
from edgekit.compiler.written import written
from edgekit.models.onnx.values import as_expr, shape_of

Values = Mapping[str, Any]
"""The inputs of a graph by name."""


@dataclass(frozen=True)
class Bucket:
    """A graph with fixed sizes."""

    sizes: Mapping[str, int]
    """The largest value of each length that it takes."""
    inputs: tuple[TensorSpec, ...]
    run: Callable[[Values], Sequence[Any]]
    """Emits the graph, and returns its outputs."""


def emit_by_size(builder: Any, buckets: Sequence[Bucket], inputs: Values) -> list[Any]:
    """Emit the graphs, the largest first, so that the smallest that holds the inputs runs; return
    the outputs at their largest sizes."""
    wanted: list[tuple[int, ...]] = []

    def run(bucket: Bucket) -> list[Any]:
        cut = {spec.name: _cut(inputs[spec.name], spec.shape) for spec in bucket.inputs}
        made = [as_expr(value) for value in bucket.run({**inputs, **_emitted(builder, cut)})]
        if not wanted:
            wanted.extend(map(shape_of, made))
        return [_widened(builder, one, shape) for one, shape in zip(made, wanted, strict=True)]

    def from_place(place: int) -> list[Any]:
        """Emit this graph and those that are smaller."""
        if place == len(buckets) - 1:
            return run(buckets[place])
        limits = buckets[place + 1].sizes.items()
        above = [
            relax.op.greater(inputs[name], relax.const(limit, "int64")) for name, limit in limits
        ]
        condition = reduce(relax.op.logical_or, [builder.emit(one) for one in above])
        branches = [partial(run, buckets[place]), partial(from_place, place + 1)]
        return emit_branch(builder, builder.emit(condition), branches)

    return from_place(0)


def _emitted(builder: Any, values: Values) -> Values:
    return {
        name: value if isinstance(value, relax.Var) else builder.emit(value)
        for name, value in values.items()
    }


def _cut(value: Any, shape: Sequence[int]) -> Any:
    """Return the first elements of each axis."""
    shorter = [axis for axis, extent in enumerate(shape) if extent != shape_of(value)[axis]]
    if not shorter:
        return value
    ends = [shape[axis] for axis in shorter]
    return relax.op.strided_slice(value, shorter, [0] * len(shorter), ends)


def _widened(builder: Any, value: Any, shape: tuple[int, ...]) -> Any:
    """Return the tensor with a larger shape. Nothing writes to what is new, beyond a length."""
    small = shape_of(value)
    if small == shape:
        return value

    def kernel(given: Any) -> Any:
        def body(ins: Any, outs: Any) -> None:
            source, result = (script.buffer_proxy(one) for one in (ins[0], outs[0]))
            with script.grid(*small) as places:
                at = tuple(places) if len(small) > 1 else (places,)
                result[at] = source[at]

        return written("widened", [given], [(shape, str(given.dtype))], body)

    return builder.emit_te(kernel, value, primfunc_name_hint="widened")
