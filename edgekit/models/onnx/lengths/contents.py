"""Compute small tensors of sizes, as shapes are computed in a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from edgekit.base.arrays import Array
from edgekit.models.onnx.lengths.extents import Size, bounds, decided, divided, larger, smaller
from edgekit.models.onnx.lengths.step import Step
from edgekit.models.onnx.lengths.values import Value, known, simplified
from edgekit.models.onnx.lengths.writer import BOOL, INT64

_INTEGERS = frozenset({INT64, int(TensorProto.INT32)})


class _Undecided(Exception):
    """Raised if a comparison depends on the lengths."""


def computed(step: Step) -> Value | None:
    """Return the node's output if its inputs are known sizes; None if it has to be computed."""
    rule = _RULES.get(step.node.op_type)
    if (
        rule is None
        or step.node.domain
        or not all(value is None or value.content is not None for value in step.inputs)
    ):
        return None
    try:
        content = rule(step, *(None if v is None else v.content for v in step.inputs))
    except (_Undecided, ValueError, IndexError, TypeError):
        return None  # The rule of the operator says what is wrong.
    if content is None:
        return None
    content = simplified(np.asarray(content))
    element = step.value().element
    if step.node.op_type == "Cast":
        element = int(step.get("to"))
    elif step.node.op_type in ("CastLike", "Where"):
        element = step.value(1).element
    if content.dtype == bool:
        element = BOOL
    elif element not in _INTEGERS:
        return None
    return known(content, element, step.outputs[0])


def shape_of(step: Step) -> Value:
    """Return the sizes of a tensor, which needs no data."""
    sizes = step.value().sizes
    if step.node.op_type == "Size":
        return known(_objects(math.prod(sizes, start=1)), INT64, step.outputs[0])
    part = slice(step.get("start", 0), step.get("end"))
    return known(_objects(list(sizes[part])), INT64, step.outputs[0])


def _objects(sizes: Any) -> Array:
    return simplified(np.array(sizes, object))


def _each(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def apply(step: Step, first: Array, second: Array) -> Array:
        return np.asarray(np.frompyfunc(function, 2, 1)(first, second), object)

    return apply


def _quotient(first: Size, second: Size) -> Size:
    if bounds(first)[0] < 0 or bounds(second)[0] <= 0:
        raise _Undecided  # ONNX rounds towards zero.
    return divided(first, second)


def _remainder(first: Size, second: Size) -> Size:
    return first - second * _quotient(first, second)


def _compared(word: Any, swapped: bool = False) -> Callable[..., Array]:
    def compare(first: Size, second: Size) -> bool:
        if swapped:
            first, second = second, first
        found = decided(word, first, second)
        if found is None:
            raise _Undecided
        return found

    def apply(step: Step, first: Array, second: Array) -> Array:
        return np.asarray(np.frompyfunc(compare, 2, 1)(first, second)).astype(bool)

    return apply


def _gather(step: Step, data: Array, places: Array) -> Array | None:
    if places.dtype == object:
        return None
    return np.take(data, places.astype(np.int64), axis=step.get("axis", 0))


def _slice(step: Step, data: Array, *bounds: Array) -> Array | None:
    if any(bound is not None and bound.dtype == object for bound in bounds):
        return None
    starts, ends, axes, steps = [*bounds, None, None, None, None][:4]
    if starts is None:
        starts, ends, axes = (np.array(step.get(word)) for word in ("starts", "ends", "axes"))
        axes = None if axes.ndim == 0 else axes
    assert ends is not None
    for i in range(starts.size):
        axis = i if axes is None else int(axes[i])
        by = 1 if steps is None else int(steps[i])
        end = int(ends[i])
        if by < 0 and end <= -data.shape[axis] - 1:
            part = slice(int(starts[i]), None, by)
        else:
            part = slice(int(starts[i]), end, by)
        data = data[(slice(None),) * (axis % data.ndim) + (part,)]
    return data


def _concat(step: Step, *parts: Array) -> Array:
    return np.concatenate([part.astype(object) for part in parts], axis=step.get("axis", 0))


def _unsqueeze(step: Step, data: Array, axes: Array | None = None) -> Array:
    found = step.get("axes") if axes is None else axes.reshape(-1).tolist()
    return np.expand_dims(data, tuple(found))


def _squeeze(step: Step, data: Array, axes: Array | None = None) -> Array:
    found = step.get("axes") if axes is None else axes.reshape(-1).tolist()
    return np.squeeze(data, None if found is None else tuple(found))


def _cast(step: Step, data: Array) -> Array | None:
    return data if int(step.get("to")) in _INTEGERS else None


def _reshape(step: Step, data: Array, shape: Array) -> Array | None:
    return None if shape.dtype == object else data.reshape(shape.astype(np.int64))


def _reduce(function: Callable[[Any, Any], Any]) -> Callable[..., Array | None]:
    def apply(step: Step, data: Array, axes: Array | None = None) -> Array | None:
        if data.ndim != 1:
            return None
        total = data[0]
        for item in data[1:]:
            total = function(total, item)
        return np.array([total] if step.get("keepdims", 1) else total, object)

    return apply


def _where(step: Step, condition: Array, first: Array, second: Array) -> Array:
    return np.where(condition.astype(bool), first.astype(object), second.astype(object))


def _expand(step: Step, data: Array, shape: Array) -> Array | None:
    if shape.dtype == object:
        return None
    return np.asarray(data * np.ones(tuple(shape), object) if data.dtype == object else None)


_RULES: Mapping[str, Callable[..., Array | None]] = {
    "Add": _each(operator.add),
    "Cast": _cast,
    "CastLike": lambda step, data, like: data,
    "Concat": _concat,
    "Div": _each(_quotient),
    "Equal": _compared("=="),
    "Expand": _expand,
    "Gather": _gather,
    "Greater": _compared("<", swapped=True),
    "GreaterOrEqual": _compared("<=", swapped=True),
    "Identity": lambda step, data: data,
    "Less": _compared("<"),
    "LessOrEqual": _compared("<="),
    "Max": _each(larger),
    "Min": _each(smaller),
    "Mod": _each(_remainder),
    "Mul": _each(operator.mul),
    "Neg": lambda step, data: -data,
    "Not": lambda step, data: None if data.dtype == object else ~data,
    "ReduceMax": _reduce(larger),
    "ReduceMin": _reduce(smaller),
    "ReduceProd": _reduce(operator.mul),
    "ReduceSum": _reduce(operator.add),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _each(operator.sub),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
