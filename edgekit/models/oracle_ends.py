"""An oracle for a model whose float ends became integers: the file itself still has floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.tensors import TensorSpec
from edgekit.models.comparison import Leeway
from edgekit.models.model import ModelSource, signature_of
from edgekit.models.oracle_types import Oracle

Ends = tuple[Sequence[TensorSpec], Sequence[TensorSpec]]


def with_ends(oracle: Oracle, source: ModelSource, ends: Ends) -> Oracle:
    """Return an oracle that takes and gives the inputs and outputs of the compiled model."""
    if source.adaptation.ends == "float":
        return oracle
    signature = signature_of(source)
    inputs = {spec.name: spec.dtype for spec in signature.inputs}
    outputs = {spec.name: spec.dtype for spec in signature.outputs}
    changed = (_changed(ends[0], inputs), _changed(ends[1], outputs))
    return IntegerEnds(oracle, *changed)


def _changed(specs: Sequence[TensorSpec], in_file: Mapping[str, str]) -> dict[str, TensorSpec]:
    """Return the tensors that are integers, and in the file floats."""
    return {
        spec.name: spec
        for spec in specs
        if spec.quantization is not None and in_file.get(spec.name, spec.dtype) != spec.dtype
    }


@dataclass(frozen=True)
class IntegerEnds:
    """Turns integers into the floats that they stand for, and back."""

    oracle: Oracle
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]

    @property
    def name(self) -> str:
        return self.oracle.name

    @property
    def version(self) -> str:
        return self.oracle.version

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._stored(self.oracle.run(self._floats(inputs, self.inputs)))

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        found = self.oracle.leeways(
            self._floats(inputs, self.inputs), self._floats(outputs, self.outputs)
        )
        return {name: leeway for name, leeway in found.items() if name not in self.outputs}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        return self.oracle.time(self._floats(inputs, self.inputs), threads, runs)

    def _stored(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        return {
            name: quantised(array, self.outputs[name]) if name in self.outputs else array
            for name, array in outputs.items()
        }

    @staticmethod
    def _floats(arrays: Mapping[str, Array], specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
        return {
            name: _dequantised(array, specs[name]) if name in specs else array
            for name, array in arrays.items()
        }


def _steps(spec: TensorSpec) -> tuple[np.float32, int]:
    assert spec.quantization is not None  # It is why the end is an integer.
    return np.float32(spec.quantization.scales[0]), spec.quantization.zero_points[0]


def _dequantised(array: Array, spec: TensorSpec) -> Array:
    scale, zero = _steps(spec)
    return np.asarray((array.astype(np.int32) - zero).astype(np.float32) * scale)


def quantised(array: Array, spec: TensorSpec) -> Array:
    """Return the integers nearest to floats."""
    scale, zero = _steps(spec)
    limits = np.iinfo(numpy_dtype(spec.dtype))
    steps = np.rint(array.astype(np.float64) / scale) + zero
    clipped = np.clip(steps, limits.min, limits.max)
    return np.asarray(clipped.astype(numpy_dtype(spec.dtype)))
