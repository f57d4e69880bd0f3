"""Two oracles for ONNX: onnxruntime, and ONNX's reference evaluator where that has no kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.errors import ModelError
from edgekit.base.options import option
from edgekit.models.comparison import Leeway
from edgekit.models.model import ModelSource
from edgekit.models.onnx.small_types import as_bytes, from_bytes, is_small
from edgekit.models.oracle_process import Start
from edgekit.models.oracle_types import Oracle, blamed, installed_or_unknown, package, seconds_of


class OnnxOracle:
    """onnxruntime, until it fails; from then on ONNX's reference evaluator."""

    def __init__(self, source: ModelSource, start: Start) -> None:
        self._source = source
        self._start = start
        self._failure: ModelError | None = None
        self._oracle: Oracle
        try:
            self._oracle = start(OnnxRuntimeOracle, source)
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
            raise self._without_oracle(error) from error

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        return self._oracle.leeways(inputs, outputs)

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        if self._failure is not None:
            raise self._failure  # the speed of the reference evaluator says nothing
        return self._oracle.time(inputs, threads, runs)

    def _fall_back(self, failure: ModelError) -> None:
        self._failure = failure
        try:
            self._oracle = self._start(ReferenceOracle, self._source)
        except ModelError as error:
            raise self._without_oracle(error) from error

    def _without_oracle(self, error: ModelError) -> ModelError:
        assert self._failure is not None
        return ModelError(
            self._failure.message,
            hint=f"{option('no-verify')} builds it without expected outputs",
            details=(*self._failure.details, error.message, *error.details),
        )


class ReferenceOracle:
    """ONNX's own evaluator in Python: slow, but with nearly every operator."""

    name = "the ONNX reference evaluator"

    def __init__(self, source: ModelSource) -> None:
        self.version = installed_or_unknown("onnx")
        self._source = source
        with blamed(self):
            from onnx.reference import ReferenceEvaluator

            from edgekit.models.onnx.reference_operators import PRECISE

            self._evaluator: Any = ReferenceEvaluator(_model(source), new_ops=list(PRECISE))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        from onnx.helper import tensor_dtype_to_np_dtype

        given = {**inputs, **self._source.constants}
        feeds = {name: given[name] for name in self._evaluator.input_names if name in given}
        for item in self._evaluator.proto_.graph.input:
            element = item.type.tensor_type.elem_type
            if item.name in self._source.constants and not is_small(element):
                kind = tensor_dtype_to_np_dtype(element)
                feeds[item.name] = self._source.constants[item.name].astype(kind)
            if item.name in feeds and is_small(element):
                feeds[item.name] = from_bytes(feeds[item.name], element)
        with blamed(self), np.errstate(all="ignore"):
            values = self._evaluator.run(None, feeds)
        names = self._evaluator.output_names
        arrays = (as_bytes(np.asarray(value)) for value in values)
        return dict(zip(names, arrays, strict=True))

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        del inputs, outputs
        return {}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        raise ModelError("ONNX's reference evaluator is not made to be timed")


_FLOATS = {"float": "float32", "double": "float64"}
"""onnxruntime's names of types that have another name elsewhere."""


def _model(source: ModelSource) -> Any:
    from edgekit.models.onnx.files import read_program

    return read_program(source)


@dataclass(frozen=True)
class _OtherRuns:
    """A model in onnxruntime with other roundings than the oracle's."""

    steps: Mapping[str, tuple[float, str]]
    """The largest step of each output whose last operator rounds, and the node that rounds it."""
    sessions: tuple[Any, ...]
    ties: tuple[Any, ...]
    """The model in which results that only roundings tell apart are equal."""
    wide: tuple[Any, ...]
    """The half-precision model in float32: as it is, then with its results nudged or rounded."""


class OnnxRuntimeOracle:
    """onnxruntime on one thread, with every graph optimisation off."""

    name = "onnxruntime"

    def __init__(self, source: ModelSource) -> None:
        # onnxruntime sends telemetry, under an id that it writes to the user's home, unless this
        # is set before it is loaded.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        self._ort = package("onnxruntime", "onnx")
        self.version = installed_or_unknown("onnxruntime")
        self._source = source
        self._session = self._open(threads=1, optimised=False)
        self._others: list[_OtherRuns | None] = []
        """The other runs; empty until first needed."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in self._session.get_outputs()]
        with blamed(self):
            values = self._session.run(names, self._feeds(self._session, inputs))
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        from edgekit.models.onnx.leeway import leeways, rounded_inputs

        others = self._other_runs()
        if others is None:
            return {}
        names = list(outputs)
        runs = [(session, inputs) for session in others.sessions]
        if others.wide:
            moved = list(rounded_inputs(inputs))
            runs += [(others.wide[0], given) for given in moved]
            runs += [(session, moved[0]) for session in others.wide[1:]]
        ties = [(session, inputs) for session in others.ties]
        return leeways(
            outputs, self._results(names, runs), self._results(names, ties), others.steps
        )

    def _results(
        self, names: Sequence[str], runs: Sequence[tuple[Any, Mapping[str, Array]]]
    ) -> Iterator[dict[str, Array]]:
        for session, given in runs:
            # A variant that onnxruntime can't run only leaves less leeway.
            with suppress(ModelError), blamed(self):
                values = session.run(names, self._feeds(session, given))
                yield dict(zip(names, values, strict=True))

    def _other_runs(self) -> _OtherRuns | None:
        """Return the model ready to run with other roundings; None if it rounds nothing."""
        if not self._others:
            from edgekit.models.onnx.leeway import roundings

            found = roundings(self._source)
            if found is None:
                self._others = [None]
            else:
                sessions = self._variants(found.variants)
                with suppress(ModelError):
                    sessions.insert(0, self._open(threads=1, optimised=True))
                ties, wide = self._variants(found.ties), self._variants(found.wide)
                made = _OtherRuns(found.steps, tuple(sessions), tuple(ties), tuple(wide))
                self._others = [made]
        return self._others[0]

    def _variants(self, models: Sequence[bytes]) -> list[Any]:
        """Open those that onnxruntime can run; the others only leave less leeway."""
        sessions = []
        for model in models:
            with suppress(ModelError):
                sessions.append(self._open(1, optimised=False, model=model))
        return sessions

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        try:
            session = self._open(threads, optimised=True)
        except ModelError:
            # onnxruntime 1.31 fails to prepare weights for it that several products share.
            session = self._open(threads, optimised=True, precise=False)
        feeds = self._feeds(session, inputs)
        with blamed(self):
            return seconds_of(lambda: session.run(None, feeds), runs)

    def _open(
        self, threads: int, optimised: bool, model: bytes | None = None, precise: bool = True
    ) -> Any:
        options = self._ort.SessionOptions()
        if precise:  # fast kernels for u8s8 saturate on CPUs without VNNI, unless told not to
            options.add_session_config_entry("session.x64quantprecision", "1")
        levels = self._ort.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if model is None and self._source.adaptation.reshape:
            model = _model(self._source).SerializeToString()
        with blamed(self):
            return self._ort.InferenceSession(
                model or str(self._source.path), options, providers=["CPUExecutionProvider"]
            )

    def _feeds(self, session: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        feeds = {}
        for entry in session.get_inputs():
            if entry.name in self._source.constants:
                name = entry.type.removeprefix("tensor(").removesuffix(")")
                kind = numpy_dtype(_FLOATS.get(name, name))
                feeds[entry.name] = self._source.constants[entry.name].astype(kind)
            elif entry.name in inputs:
                feeds[entry.name] = inputs[entry.name]
        return feeds
