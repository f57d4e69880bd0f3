"""The oracle of a model with ends: its own runtime, between two graphs that onnxruntime runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.tensors import OpenTensorSpec, TensorSpec
from edgekit.models.binding import closed
from edgekit.models.comparison import SHARE_OFF_BY_A_STEP, Leeway, tolerance_for
from edgekit.models.model import ModelSource, Signature, signature_of
from edgekit.models.oracle_process import Start
from edgekit.models.oracle_types import Oracle, blamed, installed_or_unknown, package

_SEED = 7
_RUNS = 3
"""The runs with other roundings: each tells how far those of the model may move what it means."""
_ROUNDING = 1e-5
"""The relative difference of a float32 between two correct runtimes."""


def with_ends(model: Oracle, source: ModelSource, start: Start) -> Oracle:
    """Return an oracle of the model with its ends around it."""
    return Surrounded(model, source, start(FrontOracle, source), start(BackOracle, source))


@dataclass
class Surrounded:
    """An oracle that prepares pictures before the model, and reads its outputs."""

    model: Oracle
    source: ModelSource
    front: Oracle
    back: Oracle

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def version(self) -> str:
        return self.model.version

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self.back.run(self.model.run(self.front.run(inputs)))

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        from edgekit.models.onnx.leeway import leeways

        prepared = self.front.run(inputs)
        results = self.model.run(prepared)
        known = self.model.leeways(prepared, results)
        specs = signature_of(self.source).outputs
        random = np.random.default_rng(_SEED)

        def others() -> Iterator[Mapping[str, Array]]:
            for _ in range(_RUNS):
                moved = {
                    spec.name: _moved(random, results[spec.name], spec, known.get(spec.name))
                    for spec in specs
                }
                yield self.back.run({**results, **moved})

        kept = {
            name: leeway
            for name, leeway in known.items()
            if name in outputs and np.array_equal(outputs[name], results[name])
        }
        return {**leeways(outputs, others(), (), {}), **kept}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        """Time the model alone, which is what its own runtime computes."""
        return self.model.time(self.front.run(inputs), threads, runs)


def _moved(
    random: np.random.Generator, array: Array, spec: OpenTensorSpec, leeway: Leeway | None
) -> Array:
    """Return an output as another correct runtime may compute it."""
    tolerance = tolerance_for(closed(spec, array.shape), leeway=leeway)
    allowed = 0.0 if tolerance.leeway is None else tolerance.leeway.allowed
    share = SHARE_OFF_BY_A_STEP if tolerance.leeway is None else tolerance.leeway.share
    steps = random.choice([-1.0, 1.0], array.shape) * (random.random(array.shape) < share) * allowed
    values = array.astype(np.float64)
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        return np.asarray(np.clip(np.rint(values + steps), limits.min, limits.max), array.dtype)
    if array.dtype.kind == "b":
        return array
    rounding = random.uniform(-_ROUNDING, _ROUNDING, array.shape) * np.abs(values)
    return np.asarray(values + rounding + steps, numpy_dtype(spec.dtype))


_Named: TypeAlias = "tuple[dict[str, Array], list[str]]"


class _GraphOracle:
    """A graph before or behind a model, which onnxruntime runs. It is known once tensors are."""

    name = "onnxruntime"

    def __init__(self, source: ModelSource) -> None:
        self._ort = package("onnxruntime", "onnx")
        package("onnx", "onnx")
        self.version = installed_or_unknown("onnxruntime")
        self._ends = source.ends
        self._signature: Signature = signature_of(source)
        self._session: Any = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the graph; tensors that it does not take are passed on."""
        graph = self._graph(inputs)
        if graph is None:
            return dict(inputs)
        feeds, names = self._named(graph, inputs)
        with blamed(self):
            if self._session is None:
                options = self._ort.SessionOptions()
                options.intra_op_num_threads = 1
                options.log_severity_level = 3
                providers = ["CPUExecutionProvider"]
                model = graph.model.SerializeToString()
                self._session = self._ort.InferenceSession(model, options, providers=providers)
            values = self._session.run(None, feeds)
        others = {name: array for name, array in inputs.items() if name not in graph.tensors}
        return {**dict(zip(names, map(np.asarray, values), strict=True)), **others}

    def leeways(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Mapping[str, Leeway]:
        return {}

    def time(self, inputs: Mapping[str, Array], threads: int, runs: int) -> list[float]:
        raise NotImplementedError

    def _graph(self, tensors: Mapping[str, Array]) -> Any:
        raise NotImplementedError

    def _named(self, graph: Any, tensors: Mapping[str, Array]) -> _Named:
        """Return what the graph takes, and the names of what it makes."""
        raise NotImplementedError


class FrontOracle(_GraphOracle):
    """The graph from pictures to the model's inputs."""

    def _graph(self, tensors: Mapping[str, Array]) -> Any:
        from edgekit.models.onnx.ends.graphs import front_graph

        return front_graph(self._ends, self._signature.inputs)

    def _named(self, graph: Any, tensors: Mapping[str, Array]) -> _Named:
        return {name: tensors[name] for name in graph.tensors}, list(graph.tensors)


class BackOracle(_GraphOracle):
    """The graph from the model's outputs to what they mean."""

    def _graph(self, tensors: Mapping[str, Array]) -> Any:
        from edgekit.models.onnx.ends.graphs import back_graph

        states = {spec.state for spec in self._signature.inputs}
        specs: list[TensorSpec] = [
            closed(spec, tensors[spec.name].shape)
            for spec in self._signature.outputs
            if spec.name not in states
        ]
        return back_graph(self._ends, self._signature.inputs, specs)

    def _named(self, graph: Any, tensors: Mapping[str, Array]) -> _Named:
        from edgekit.models.onnx.ends.nodes import of_model

        feeds = {of_model(name): tensors[name] for name in graph.tensors}
        return feeds, [item.name for item in graph.model.graph.output]
