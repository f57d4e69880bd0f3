"""The regions of a model that stay ONNX, beside those that a partition found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit.backends.base import Decision, Layer, Region, Step, Tensor
from edgekit.base.own_backends import leftovers_backend
from edgekit.base.wording import counted, size
from edgekit.models.leftovers import Leftover

if TYPE_CHECKING:
    from edgekit.backends.partition import Partition, Selection
    from edgekit.base.tensors import TensorSpec
    from edgekit.models.model import Model


def with_leftovers(found: Partition, model: Model, selection: Selection) -> Partition:
    """Add the model's leftovers to a partition, as regions of the backend that takes them."""
    if not model.leftovers:
        return found
    backend = leftovers_backend(backend.name for backend, _ in selection.backends)
    regions = tuple(region_of(part, backend) for part in model.leftovers)
    decisions = tuple(
        decision for part in model.leftovers for decision in _decisions(part, backend)
    )
    return replace(
        found,
        regions=(*found.regions, *regions),
        decisions=(*found.decisions, *decisions),
    )


def cost_in_words(backend: str, operators: int, region_bytes: int, library_bytes: int) -> str:
    """Return what it costs that a backend runs what can't be compiled; `library_bytes` is 0 where
    the library is not fetched yet."""
    library = f", and its library is {size(library_bytes)}" if library_bytes else ""
    return (
        f"{backend} runs {counted(operators, 'operator')} that can't be compiled: "
        f"{size(region_bytes)} of ONNX{library}. It is the oracle of ONNX models too, so that a "
        "comparison with it proves the rest of the model only"
    )


def region_of(part: Leftover, backend: str) -> Region:
    inputs, outputs = _tensors(part.inputs), _tensors(part.outputs)
    step = Step(
        rule="leftover",
        layer=Layer(
            kind="onnx",
            inputs=tuple(spec.name for spec in part.inputs),
            weights={"model": np.frombuffer(part.content, np.uint8)},
        ),
        inputs=inputs,
        outputs=outputs,
        operators=tuple(node.operator for node in part.nodes),
        nodes=tuple(node.name for node in part.nodes),
        macs=0,
    )
    return Region(part.symbol, backend, (step,), inputs, outputs)


def _tensors(specs: tuple[TensorSpec, ...]) -> tuple[Tensor, ...]:
    return tuple(Tensor(spec.name, spec.shape, spec.dtype) for spec in specs)


def _decisions(part: Leftover, backend: str) -> Iterator[Decision]:
    for node in part.nodes:
        yield Decision(
            operator=node.operator,
            node=node.name,
            shape=node.shape,
            macs=0,
            backend=backend,
            region=part.symbol,
            reason=f"{node.reason}; its region is {size(len(part.content))} of ONNX",
        )
