"""Makes further reference vectors: extreme inputs and known samples.

A vector is only made if the oracle gives a defined result. The bundle and every report name each
vector that is left out, with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.errors import ModelError
from edgekit.base.tensors import TensorSpec
from edgekit.base.varying import at_sizes, sizes_to_try
from edgekit.base.wording import size
from edgekit.bundle.folder import Vector
from edgekit.bundle.manifest_vectors import LeftOut
from edgekit.models.comparison import compare, tolerance_for
from edgekit.models.edge_inputs import (
    MAGNITUDES,
    is_float,
    largest_inputs,
    nan_inputs,
    nudged_inputs,
    zero_inputs,
)
from edgekit.models.inputs import reference_inputs
from edgekit.models.known_samples import count_known_samples, read_known_sample, spread
from edgekit.models.model import ModelSource
from edgekit.models.oracle import oracle_for
from edgekit.models.oracle_ends import with_ends
from edgekit.models.oracle_types import Oracle
from edgekit.models.preprocess import Preprocess

CALLS = 3
"""The number of calls in the sequence that a model with state is verified with."""
MOST_BYTES = 32 << 20
"""The largest size of all further vectors together, in bytes."""
ZEROS, LARGEST, NAN = "zeros", "largest", "nan"


@dataclass(frozen=True)
class Edges:
    """The facts about a model that decide its extreme inputs."""

    index_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The smallest and largest value of each input that holds indices."""
    preprocess: Mapping[str, Preprocess] = field(default_factory=dict)
    nan_obstacle: str = ""
    """The reason why the model may lose NaN where the oracle keeps it; empty if it does not."""


@dataclass(frozen=True)
class Further:
    """The further vectors that were made, and those that were not."""

    vectors: tuple[Vector, ...]
    left_out: tuple[LeftOut, ...]


def further_vectors(
    source: ModelSource,
    oracle: Oracle,
    ends: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    usual: Vector,
    seed: int,
    edges: Edges,
) -> Further:
    """Make the vectors that follow the `usual` one, as many as fit into MOST_BYTES."""
    specs, ranges = ends[0], edges.index_ranges
    maker = _Maker(source, oracle, ends, usual)
    if any(spec.state for spec in specs):
        for call in range(2, CALLS + 1):
            maker.add(f"call-{call}", partial(maker.next_call, seed + call, ranges))
    for sizes in sizes_to_try(specs)[1:]:
        name = "-".join(["size", *map(str, sizes.values())])
        shaped = [at_sizes(spec, sizes) for spec in specs]
        maker.add(name, partial(reference_inputs, shaped, seed, ranges))
    maker.add(ZEROS, lambda: zero_inputs(specs, usual.inputs, ranges))
    maker.add(
        LARGEST,
        *(
            partial(largest_inputs, specs, seed, ranges, edges.preprocess, magnitude)
            for magnitude in MAGNITUDES
        ),
    )
    if any(is_float(array) for array in usual.inputs.values()):
        if edges.nan_obstacle:
            maker.leave_out(NAN, edges.nan_obstacle)
        else:
            maker.add(NAN, lambda: nan_inputs(usual.inputs))
    given = [spec for spec in specs if spec.state is None]

    def known(index: int) -> dict[str, Array]:
        return {**usual.inputs, **read_known_sample(source.path, given, index)}

    # Samples beside a model are its own tensors, and not the pictures that its program takes.
    count = 0 if source.ends.pictures else count_known_samples(source.path, given)
    for number, index in enumerate(spread(count), 1):
        maker.add(f"sample-{number}", partial(known, index))
    return Further(tuple(maker.vectors[1:]), tuple(maker.left_out))


class _Maker:
    """Makes vectors one after another."""

    def __init__(
        self,
        source: ModelSource,
        oracle: Oracle,
        ends: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
        usual: Vector,
    ) -> None:
        self.vectors = [usual]
        self.left_out: list[LeftOut] = []
        self._source, self._oracle, self._name = source, oracle, oracle.name
        self._specs, self._results = ends
        self._bytes = sum(
            math.prod(spec.shape) * numpy_dtype(spec.dtype).itemsize
            for spec in (*ends[0], *ends[1])
        )

    def next_call(self, seed: int, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Array]:
        """Return other inputs, with the state that the call of the last vector left."""
        before = self.vectors[-1].outputs
        state = {spec.name: before[spec.state] for spec in self._specs if spec.state is not None}
        return {**reference_inputs(self._specs, seed, ranges), **state}

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out.append(LeftOut(name, reason))

    def add(self, name: str, *choices: Callable[[], Mapping[str, Array]]) -> None:
        """Make a vector of the first choice with a defined result, or record why none has one."""
        reason = ""
        if self._bytes * len(self.vectors) > MOST_BYTES:
            reason = (
                f"a vector of this model takes {size(self._bytes)}, and those beside the first "
                f"may take {size(MOST_BYTES)} together"
            )
            choices = ()
        for make_inputs in choices:
            reason = self._make(name, make_inputs())
            if not reason:
                return
        self.leave_out(name, reason)

    def _make(self, name: str, inputs: Mapping[str, Array]) -> str:
        """Make a vector unless one has the same inputs. Return why it failed, else nothing."""
        if any(_are_same(inputs, made.inputs) for made in self.vectors):
            return ""
        try:
            outputs = self._run(inputs)
            problem = self._problem(name, inputs, outputs)
        except ModelError as error:
            return f"{self._name} has no result: {error.message}"
        if problem:
            return problem
        leeways = self._oracle.leeways(inputs, outputs)
        self.vectors.append(Vector(name, inputs, outputs, leeways))
        return ""

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self._oracle.run(inputs)
        if self._oracle.name != self._name:
            # The oracle fell back to another one. Go on with the first, as for the other vectors.
            ends = (self._specs, self._results)
            self._oracle = with_ends(oracle_for(self._source), self._source, ends)
            raise ModelError("it can't run the model on these inputs")
        return outputs

    def _problem(self, name: str, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> str:
        """Say why the oracle's result can't be compared with; empty if it can."""
        floats = [array for array in outputs.values() if is_float(array)]
        if name == NAN and floats and not any(_is_nan(array).any() for array in floats):
            return f"{self._name} gives no NaN for NaN"
        if name != LARGEST:
            return ""
        if not all(_is_finite(array).all() for array in outputs.values()):
            return f"the result of {self._name} overflows"
        leeways = self._oracle.leeways(inputs, outputs)
        tolerances = {
            spec.name: tolerance_for(spec, leeway=leeways.get(spec.name)) for spec in self._results
        }
        if all(
            compare(outputs, self._run(nudged), self._results, tolerances).passed
            for nudged in nudged_inputs(inputs)
        ):
            return ""
        return (
            f"the result of {self._name} changes by more than is allowed where the inputs change "
            "by what a sum of floats is off by"
        )


def _are_same(some: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    return all(array.tobytes() == others[name].tobytes() for name, array in some.items())


def _is_nan(array: Array) -> Array:
    return np.isnan(array.astype(np.float64))


def _is_finite(array: Array) -> Array:
    return np.isfinite(array.astype(np.float64))
