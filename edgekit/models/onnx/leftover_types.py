"""The types and shapes of values that edgekit can't compute, learned from onnxruntime."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from edgekit.models.onnx.values import dtype_named
from edgekit.models.oracle_types import package

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""numpy's names of the types that a device's tensors may have, by onnxruntime's."""
_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (/\S+:\d+ .*?\) (?=[A-Z]))?")
"""The number and the place in onnxruntime's source, before what it says."""
_SAMPLES = 3
_UNKNOWN = -1


@dataclass(frozen=True)
class ValueType:
    """What is known of a value."""

    dtype: str
    shape: tuple[int, ...]
    why_inside: str = ""
    """The reason why it can't leave onnxruntime; empty for a tensor of a fixed shape."""


UNKNOWN = ValueType("", (), "is nothing that onnxruntime knows the type of")


class NotRunError(Exception):
    """onnxruntime can't run a model."""


def types_of(model: onnx.ModelProto, data_dependent: Collection[str]) -> dict[str, ValueType]:
    """Return what a model's outputs are.

    Their shapes are those that onnxruntime infers. Where it infers none, they are those of runs on
    several inputs, unless an output is known to depend on the data. A region that makes another
    shape at run time fails.
    """
    session = _session(model)
    shapes = list(_shapes_of_runs(session))
    return {
        output.name: _found(output, [run[index] for run in shapes], output.name in data_dependent)
        for index, output in enumerate(session.get_outputs())
    }


def computed(model: onnx.ModelProto) -> list[np.ndarray]:
    """Return the outputs of a model without inputs."""
    try:
        results = _session(model).run(None, {})
    except NotRunError:
        raise
    except Exception as error:
        raise NotRunError(_said(error)) from error
    if not all(isinstance(result, np.ndarray) for result in results):
        raise NotRunError("its result is no tensor")
    return list(results)


def _session(model: onnx.ModelProto) -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    ort = package("onnxruntime", "onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise NotRunError(_said(error)) from error


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return _PREFIX.sub("", lines[0]) if lines else type(error).__name__


def _shapes_of_runs(session: Any) -> Iterator[Sequence[tuple[int, ...] | None]]:
    for seed in range(_SAMPLES):
        feeds = {item.name: _sample(item, seed) for item in session.get_inputs()}
        try:
            results = session.run(None, feeds)
        except Exception:  # noqa: BLE001 -- these inputs may not fit: what it infers counts then
            continue
        yield [result.shape if isinstance(result, np.ndarray) else None for result in results]


def _sample(item: Any, seed: int) -> np.ndarray:
    """Return an input of zeros, or of small numbers."""
    dtype = dtype_named(_DTYPES[_element(item)])
    random = np.random.default_rng(seed)
    values = (
        random.standard_normal(item.shape)
        if dtype.kind not in "iub"
        else random.integers(0, 2, item.shape)
    )
    return np.asarray(values * (seed > 0)).astype(dtype)


def _found(output: Any, runs: Sequence[tuple[int, ...] | None], depends_on_data: bool) -> ValueType:
    dtype = _DTYPES.get(_element(output))
    if dtype is None:
        kind = output.type.partition("(")[0]
        return ValueType(
            "", (), _KINDS.get(_element(output), _KINDS.get(kind, f"is {output.type}"))
        )
    inferred = tuple(
        extent if isinstance(extent, int) else _UNKNOWN for extent in output.shape or ()
    )
    seen = {tuple(shape) for shape in runs if shape is not None}
    if inferred and _UNKNOWN not in inferred and seen <= {inferred}:
        return ValueType(dtype, inferred)
    if len(seen) != 1 or depends_on_data:
        return ValueType(dtype, (), "has a size that depends on the data")
    return ValueType(dtype, seen.pop())


def _element(item: Any) -> str:
    return str(item.type).removeprefix("tensor(").removesuffix(")")


_KINDS: Mapping[str, str] = {
    "string": "is text",
    "seq": "is a sequence",
    "map": "is a map",
    "optional": "is an optional",
    "sparse_tensor": "is a sparse tensor",
}
