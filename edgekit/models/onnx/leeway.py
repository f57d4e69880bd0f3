"""Measure with onnxruntime how far rounding inside an ONNX model may move its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from edgekit.base.arrays import Array
from edgekit.base.tensors import TensorSpec
from edgekit.base.wording import number, percent
from edgekit.models.comparison import (
    SHARE_OFF_BY_A_STEP,
    SHARE_ON_TIES,
    Leeway,
    tolerance_for,
    within,
)
from edgekit.models.model import ModelSource
from edgekit.models.onnx.files import read_program
from edgekit.models.onnx.nudging import (
    FLOATS,
    HALVES,
    decides,
    types_of,
    with_coarse_results,
    with_defined_casts,
    with_nudged_results,
)
from edgekit.models.onnx.rounding import nudged, rounds, steps_of_outputs

_LARGEST_MODEL = (2 << 30) - (16 << 20)
"""The most bytes of a model that can be passed in one piece."""
_SIGNS = (1.0, -1.0)
_HALF_STEP = 2.0**-11
"""The relative rounding error of float16."""
_OTHER_RUNS = 2.0
"""The factor on onnxruntime's differences from itself in a few runs that bounds those of another
correct runtime."""
_NEARLY_ALL_TIES = 1.25
"""The same factor for the run in which ties are equal, on the share of elements that differ: no
runtime breaks more ties than there are, and that run misses the few across one of its steps."""


@dataclass(frozen=True)
class Roundings:
    """The roundings of a model, known before it runs."""

    steps: Mapping[str, tuple[float, str]]
    """The largest step of each output whose last operator rounds, and the node that rounds it."""
    variants: tuple[bytes, ...]
    """The model with its roundings nudged; empty if it is too large to change."""
    ties: tuple[bytes, ...]
    """The model in which results that only roundings tell apart are equal. Empty if floats decide
    nothing."""
    wide: tuple[bytes, ...]
    """The float32 versions of a model that computes in half precision: as it is, with its results
    nudged, and with each rounded to half precision. Empty if there are none."""


def roundings(source: ModelSource) -> Roundings | None:
    """Return the model's roundings; None if it computes in one type of float, which then decides
    nothing."""
    structure = read_program(source, weights=False)
    is_rounded, has_halves = rounds(structure.graph), holds_halves(structure)
    types = types_of(structure)
    is_decided = decides(structure.graph, types)
    if not (is_rounded or has_halves or is_decided):
        return None
    steps = steps_of_outputs(structure.graph)
    model = read_program(source)
    changed = list(nudged(model)) if is_rounded else []
    if is_decided:
        changed += [with_nudged_results(model, types, FLOATS, sign) for sign in _SIGNS]
        changed.append(with_defined_casts(model, types))
    ties = [with_coarse_results(model, types, FLOATS)] if is_decided else []
    wide = widened(model) if has_halves else None
    wider = [] if wide is None else [wide]
    if wide is not None:
        wider += [with_nudged_results(wide, types, HALVES, sign) for sign in _SIGNS]
        wider.append(with_coarse_results(wide, types, HALVES))
    return Roundings(steps, _in_bytes(changed), _in_bytes(ties), _in_bytes(wider))


def _in_bytes(models: Sequence[onnx.ModelProto]) -> tuple[bytes, ...]:
    return tuple(one.SerializeToString() for one in models if one.ByteSize() <= _LARGEST_MODEL)


def rounded_inputs(inputs: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the float inputs in float32: unchanged, and with every element nudged by half
    precision's rounding error, alternately up and down, and then reversed."""
    for size in (0.0, _HALF_STEP, -_HALF_STEP):
        moved = dict(inputs)
        for name, array in inputs.items():
            if array.dtype.name.startswith(("float", "bfloat")):
                signs = np.where(np.arange(array.size) % 2, -size, size).reshape(array.shape)
                dtype = "float64" if array.dtype.name == "float64" else "float32"
                moved[name] = np.asarray(array.astype("float64") * (1.0 + signs), dtype)
        yield moved


def leeways(
    expected: Mapping[str, Array],
    others: Iterable[Mapping[str, Array]],
    ties: Iterable[Mapping[str, Array]],
    steps: Mapping[str, tuple[float, str]],
) -> Mapping[str, Leeway]:
    """Return the leeway of each output that depends on rounding: one step of the node that rounds
    it, and the spread of the `others`, which are runs with other roundings, and of the `ties`, in
    which all ties are equal."""
    spreads = {name: _Spread(array) for name, array in expected.items()}
    for runs, factor in ((others, _OTHER_RUNS), (ties, _NEARLY_ALL_TIES)):
        for found in runs:
            for name, spread in spreads.items():
                spread.add(found[name], factor)
    made = {name: spread.leeway(*steps.get(name, (0.0, ""))) for name, spread in spreads.items()}
    return {name: leeway for name, leeway in made.items() if leeway is not None}


class _Spread:
    """The spread of one output over several runs."""

    def __init__(self, expected: Array) -> None:
        self._expected = expected
        self._largest = 0.0
        self._share = 0.0
        self._allowed_share = 0.0

    def add(self, found: Array, factor: float) -> None:
        if not self._expected.size:
            return
        spec = TensorSpec("", self._expected.dtype.name, self._expected.shape)
        if found.shape != self._expected.shape:
            return  # a number of boxes or of unique elements is no rounding
        same = within(self._expected, found, tolerance_for(spec))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(found.astype(np.float64) - self._expected.astype(np.float64))
        error = np.where(np.isfinite(error) & ~same, error, 0.0)
        self._largest = max(self._largest, float(error.max()))
        share = float(np.count_nonzero(error)) / error.size
        self._share = max(self._share, share)
        self._allowed_share = max(self._allowed_share, factor * share)

    def leeway(self, step: float, maker: str) -> Leeway | None:
        reasons = []
        if step:
            reasons.append(f"one step of {maker}")
        if self._largest:
            reasons.append(
                f"twice what onnxruntime differs from itself by ({number(self._largest)} in "
                f"{percent(self._share)} of the elements)"
            )
        if not reasons:
            return None
        least = SHARE_OFF_BY_A_STEP if step else SHARE_ON_TIES
        share = min(1.0, max(least, self._allowed_share))
        allowed = max(step, _OTHER_RUNS * self._largest)
        return Leeway(allowed, share, " or ".join(reasons))


_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPES_IN_ATTRIBUTES = ("to", "dtype", "output_dtype")


def holds_halves(model: onnx.ModelProto) -> bool:
    """Tell whether any tensor that the model names is of half precision."""
    return (
        any(
            tensor.data_type in _HALVES
            for graph in graphs(model.graph)
            for tensor in _tensors(graph)
        )
        or any(
            item.type.tensor_type.elem_type in _HALVES
            for graph in graphs(model.graph)
            for item in (*graph.input, *graph.output)
        )
        or any(
            attribute.name in _TYPES_IN_ATTRIBUTES and attribute.i in _HALVES
            for graph in graphs(model.graph)
            for node in graph.node
            for attribute in node.attribute
        )
    )


def widened(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model in float32; None if it has functions, whose types are not tracked."""
    if len(model.functions):
        return None
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for graph in graphs(wide.graph):
        del graph.value_info[:]
        for tensor in _tensors(graph):
            if tensor.data_type in _HALVES:
                values = numpy_helper.to_array(tensor).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        for item in (*graph.input, *graph.output):
            if item.type.tensor_type.elem_type in _HALVES:
                item.type.tensor_type.elem_type = TensorProto.FLOAT
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name in _TYPES_IN_ATTRIBUTES and attribute.i in _HALVES:
                    attribute.i = TensorProto.FLOAT
    return wide


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and all bodies in its control flow."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)
            for body in attribute.graphs:
                yield from graphs(body)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
