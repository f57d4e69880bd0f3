"""Two oracles for ONNX: onnxruntime, and where that has no kernel, ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.arrays import Array
from edgekit.comparison import Leeway
from edgekit.errors import ModelError
from edgekit.model import ModelSource
from edgekit.oracle import OnnxRuntimeOracle, Oracle, blamed, installed_or_unknown


class OnnxOracle:
    """onnxruntime, until it fails; from then on ONNX's reference evaluator."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._failure: ModelError | None = None
        self._oracle: Oracle
        try:
            self._oracle = OnnxRuntimeOracle(source)
        except ModelError as error:
            self._fall_back(error)

    @property
    def name(self) -> str:
        return self._oracle.name

    @property
    def version(self) -> str:
        return self._oracle.version

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if self._failure is None:
            try:
                return self._oracle.run(inputs)
            except ModelError as error:
                self._fall_back(error)
        try:
            return self._oracle.run(inputs)
        except ModelError as error:
            raise self._nobody(error) from error

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        return self._oracle.leeways(inputs, outputs)

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        if self._failure is not None:
            raise self._failure  # how fast the reference evaluator is says nothing
        return self._oracle.time(inputs, threads, runs)

    def _fall_back(self, failure: ModelError) -> None:
        self._failure = failure
        try:
            self._oracle = ReferenceOracle(self._source)
        except ModelError as error:
            raise self._nobody(error) from error

    def _nobody(self, error: ModelError) -> ModelError:
        assert self._failure is not None
        return ModelError(
            self._failure.message,
            hint="edgekit build --no-verify builds it all the same, and then nothing is proven",
            details=(*self._failure.details, error.message, *error.details),
        )


class ReferenceOracle:
    """ONNX's own evaluator in Python: slow, and it has nearly every operator."""

    name = "the ONNX reference evaluator"

    def __init__(self, source: ModelSource) -> None:
        self.version = installed_or_unknown("onnx")
        self._source = source
        with blamed(self):
            from onnx.reference import ReferenceEvaluator

            self._evaluator: Any = ReferenceEvaluator(_model(source.path))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = {**inputs, **self._source.constants}
        feeds = {name: given[name] for name in self._evaluator.input_names if name in given}
        with blamed(self), np.errstate(all="ignore"):
            values = self._evaluator.run(None, feeds)
        names = self._evaluator.output_names
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        del inputs, outputs
        return {}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        raise ModelError("ONNX's reference evaluator is not made to be timed")


def _model(path: Path) -> Any:
    from edgekit.frontends.onnx.files import read_model

    return read_model(path)
