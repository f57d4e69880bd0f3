"""A seed's graph, inputs that keep it finite where there are such, and what onnxruntime gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.base.arrays import numpy_dtype
from edgekit.base.errors import EdgekitError
from edgekit.base.tensors import TensorSpec
from edgekit.models.inputs import reference_inputs
from edgekit.models.model import ModelSource, import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_process import in_this_process
from graphs.ways import REFUSALS, Arrays, Graph, Outcome

RANGES = ((-1.0, 1.0), (1.0, 2.0), (0.05, 0.95))
"""Ranges of float inputs, tried in this order. nnsmith makes its graphs for the second."""


@dataclass(frozen=True)
class NoGraph:
    """Why a seed has nothing to run: the same for every way."""

    outcome: Outcome


def graph_for(path: Path) -> Graph | NoGraph:
    try:
        source = open_model(path)
        oracle = oracle_for(source, in_this_process)
        shapes = _declared(source)
        inputs, expected = _finite(source, shapes)
    except EdgekitError as error:
        return NoGraph(Outcome("no oracle", error.message))
    try:
        model = import_model(source)
    except REFUSALS as error:
        return NoGraph(Outcome("refused", error.message))
    except Exception as error:  # noqa: BLE001 - any exception is the finding
        return NoGraph(Outcome("FAILED", f"import: {type(error).__name__}: {error}"))
    return Graph(source, model, inputs, expected, oracle.leeways(inputs, expected))


def _declared(source: ModelSource) -> Sequence[TensorSpec]:
    from edgekit.models.onnx.binding import bind
    from edgekit.models.onnx.files import read_model

    return bind(read_model(source.path).graph, source).inputs


def _finite(source: ModelSource, specs: Sequence[TensorSpec]) -> tuple[Arrays, Arrays]:
    """The first inputs for which no output is NaN or infinite; the first of all if there are
    none."""
    oracle = oracle_for(source, in_this_process)
    first = None
    for inputs in _candidates(specs):
        expected = oracle.run(inputs)
        first = first or (inputs, expected)
        arrays = [array for array in expected.values() if array.dtype.kind == "f"]
        if all(np.isfinite(array).all() for array in arrays):
            return inputs, expected
    assert first is not None
    return first


def _candidates(specs: Sequence[TensorSpec]) -> Iterator[Arrays]:
    drawn = reference_inputs(specs, 0)
    for low, high in RANGES:
        inputs = {}
        for spec in specs:
            values = drawn[spec.name]
            if values.dtype.kind == "f":
                unit = (values.astype("float64") + 1.0) / 2.0
                values = np.asarray(low + unit * (high - low), numpy_dtype(spec.dtype))
            inputs[spec.name] = values
        yield inputs
