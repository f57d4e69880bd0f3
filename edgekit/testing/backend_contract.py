"""The promises of every backend, as a suite of tests. docs/adding/backend.md shows its use.

A subclass names the backend, and pytest collects the tests below:

    class TestLoops(BackendContract):
        backend = "loops"
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.strategies import SearchStrategy

from edgekit.backends.base import Backend, Options, OptionValue, Region
from edgekit.backends.cost import estimate
from edgekit.backends.offloading import partition_model
from edgekit.backends.partition import NO_RULE, Partition, Selection
from edgekit.backends.plan import OffloadPlan, options_of
from edgekit.backends.region_export import export_regions
from edgekit.backends.registry import load_backend
from edgekit.base.arrays import Array
from edgekit.building.build import build
from edgekit.building.request import BuildRequest
from edgekit.devices.local.device import LocalDevice
from edgekit.models.model import Model, import_model, open_model
from edgekit.models.oracle import oracle_for
from edgekit.profiles.board import load_board
from edgekit.profiles.offload import Rates
from edgekit.profiles.toolchain import load_toolchain
from edgekit.testing.operators import FAMILIES, Case

HOSTILE = 'x*/\n#error */ \\\n#error"\n#error ??/)" %s \'é </script>'
"""A name that ends comments, strings and lines of C++."""
EVERYTHING_PAYS = Rates(call_us=-1e12)


class _Collector(Protocol):
    """The part of pytest's Metafunc that is used."""

    fixturenames: Sequence[str]

    def parametrize(self, name: str, values: Sequence[str]) -> None: ...


class OperatorContract:
    """Operators at random shapes compute what the model's own runtime computes."""

    backend: str
    """The name that `--offload` takes."""
    board = "local"
    """A board that the backend supports."""
    families: Mapping[str, Callable[[], SearchStrategy[Case]]] = FAMILIES
    """The operators that the backend takes, some of each: random small models by name."""
    examples = 2
    """How many models of a family are built and run."""
    close = 2e-5
    """The largest deviation, as a part of the largest expected value: libraries add in another
    order."""

    def may_stay(self, family: str, case: Case, operator: str, reason: str) -> bool:
        """Return whether TVM may run an operator of this model, for the reason that is given."""
        return reason != NO_RULE

    def outputs(self, model: Model, inputs: Sequence[Array]) -> Sequence[Array]:
        """Run a model with all in the backend that it takes: build a bundle and load it."""
        bundle = self.built(model.source.path, model.source.path.parent / "bundle")
        names = [spec.name for spec in model.inputs]
        with LocalDevice(600).opened(bundle) as session:
            made = session.run(dict(zip(names, inputs, strict=True))).outputs
        return [made[spec.name] for spec in model.outputs]

    def pytest_generate_tests(self, metafunc: _Collector) -> None:
        if "family" in metafunc.fixturenames:
            metafunc.parametrize("family", list(self.families))
        if "option" in metafunc.fixturenames:
            metafunc.parametrize("option", list(load_backend(self.backend).options))

    def test_operators_compute_what_the_models_own_runtime_computes(
        self, family: str, tmp_path: Path
    ) -> None:
        offloaded = 0

        @settings(_SETTINGS, max_examples=self.examples)
        @given(case=self.families[family]())
        def judged(case: Case) -> None:
            nonlocal offloaded
            model = _imported(case.model(), tmp_path)
            found = self.partitioned(model)
            offloaded += bool(found.regions)
            left = [(d.operator, d.reason) for d in found.decisions if d.backend is None]
            assert not [each for each in left if not self.may_stay(family, case, *each)]
            self._compare(case, model)

        judged()
        assert offloaded, f"{self.backend} took nothing of the family {family}"

    def _compare(self, case: Case, model: Model) -> None:
        given = {f"x{index}": value for index, value in enumerate(case.values())}
        inputs = [given[spec.name] for spec in model.inputs]  # what no node reads is no input
        expected = oracle_for(model.source).run(given)
        made = self.outputs(model, inputs)
        for spec, actual in zip(model.outputs, made, strict=True):
            wanted = expected[spec.name]
            assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), spec.name
            allowed = self.close * max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed, err_msg=spec.name)

    def partitioned(self, model: Model, **options: OptionValue) -> Partition:
        """Offload all that the backend takes, whatever it costs."""
        loaded = load_backend(self.backend)
        chosen = Selection(((loaded, options_of(loaded, options)),), rates=EVERYTHING_PAYS)
        return partition_model(model, chosen)

    def built(self, path: Path, folder: Path) -> Any:
        """Build the model into a bundle with all in the backend that it takes."""
        board = load_board(self.board)
        request = BuildRequest(
            open_model(path),
            board,
            load_toolchain(board.toolchain),
            offload=OffloadPlan((self.backend,), rates=EVERYTHING_PAYS),
        )
        # A backend under work changes and keeps its version: a cached bundle may be older.
        return build(request, folder, isolated=False, use_cache=False).bundle


class BackendContract(OperatorContract):
    """All promises of a backend."""

    def test_a_refusal_carries_a_reason(self, family: str, tmp_path: Path) -> None:
        @settings(_SETTINGS, max_examples=4)
        @given(case=self.families[family]())
        def judged(case: Case) -> None:
            # Nine axes and integers are more than most libraries take: refused, never a crash.
            for change in (_as_it_is, _with_nine_axes, _with_integers):
                try:
                    model = _imported(change(case.model()), tmp_path)
                except Exception:  # noqa: BLE001 - the operator has no such form
                    continue
                for decision in self.partitioned(model).decisions:
                    assert decision.backend in (None, self.backend)
                    for reason in decision.reason.split("; "):
                        assert reason.removeprefix(f"{self.backend}:").strip()
                        assert reason.isprintable()

        judged()

    def test_one_model_always_gets_the_same_regions(self, tmp_path: Path) -> None:
        first, second = (self.partitioned(self._sample(tmp_path)) for _ in range(2))

        assert [region.symbol for region in first.regions] == [
            region.symbol for region in second.regions
        ]
        for one, other in zip(first.regions, second.regions, strict=True):
            assert self._generated(one) == self._generated(other)

    def test_an_option_changes_the_identity(self, option: str, tmp_path: Path) -> None:
        model = self._sample(tmp_path)
        found = load_backend(self.backend).options[option]
        other = next((c for c in found.choices if c != found.default), _another(found.default))

        before, after = self.partitioned(model), self.partitioned(model, **{option: other})

        assert not {r.symbol for r in before.regions} & {r.symbol for r in after.regions}

    def test_a_new_version_changes_the_identity(self, tmp_path: Path) -> None:
        model, loaded = self._sample(tmp_path), load_backend(self.backend)
        newer: Backend = _Newer(loaded)
        chosen = Selection(((newer, options_of(loaded, {})),), rates=EVERYTHING_PAYS)

        before, after = self.partitioned(model), partition_model(model, chosen)

        assert not {r.symbol for r in before.regions} & {r.symbol for r in after.regions}

    def test_the_libraries_identity_is_found_without_building_it(self) -> None:
        board, loaded = load_board(self.board), load_backend(self.backend)
        toolchain = load_toolchain(board.toolchain)

        assert loaded.identity(board, toolchain) == loaded.identity(board, toolchain)
        assert board.cpu.arch in loaded.architectures

    def test_costs_are_finite(self, family: str, tmp_path: Path) -> None:
        @settings(_SETTINGS, max_examples=4)
        @given(case=self.families[family]())
        def judged(case: Case) -> None:
            backend = load_backend(self.backend)
            for region in self.partitioned(_imported(case.model(), tmp_path)).regions:
                verdict = estimate(region, Rates(), backend, options_of(backend, {}))
                assert math.isfinite(verdict.saved_us)
                assert region.macs >= 0
                assert region.boundary_bytes > 0
                assert [step for step in region.steps if not step.operators] == []

        judged()

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """C++ into which a name escapes does not compile."""
        onnx.save(_renamed(self._sample_case(tmp_path).model()), tmp_path / "hostile.onnx")

        bundle = self.built(tmp_path / "hostile.onnx", tmp_path / "bundle")

        assert self.backend in (bundle.path / "manifest.json").read_text(encoding="utf-8")

    def test_exported_regions_read_back_as_they_are(self, tmp_path: Path) -> None:
        regions = self.partitioned(self._sample(tmp_path)).regions
        export_regions(regions, tmp_path / "exported")
        document = json.loads((tmp_path / "exported" / "regions.json").read_text("utf-8"))

        for region, read in zip(regions, document["regions"], strict=True):
            assert (read["name"], read["backend"]) == (region.symbol, self.backend)
            assert read["inputs"] == [tensor.name for tensor in region.inputs]
            assert read["outputs"] == [tensor.name for tensor in region.outputs]
            made = set(read["inputs"])
            for step, layer in zip(region.steps, read["layers"], strict=True):
                assert set(layer["inputs"]) <= made, "a layer reads what no layer before it made"
                made.update(layer["outputs"])
                assert layer["kind"] == step.layer.kind
                assert layer["weights"].keys() == step.layer.weights.keys()
                for name, weight in layer["weights"].items():
                    stored = np.load(tmp_path / "exported" / weight["file"])
                    np.testing.assert_array_equal(stored, step.layer.weights[name])
            assert set(read["outputs"]) <= made

    def _generated(self, region: Region) -> tuple[str, Mapping[str, bytes]]:
        backend = load_backend(self.backend)
        options: Options = options_of(backend, {})
        made = backend.generate(region, options)
        assert (made.symbol, made.backend) == (region.symbol, self.backend)
        return made.source, made.blobs

    def _sample(self, folder: Path) -> Model:
        return _imported(self._sample_case(folder).model(), folder)

    def _sample_case(self, folder: Path) -> Case:
        """Find a model of the first family of which the backend takes a part."""

        def taken(case: Case) -> bool:
            return bool(self.partitioned(_imported(case.model(), folder)).regions)

        family = next(iter(self.families.values()))
        return find(family(), taken, settings=settings(_SETTINGS, max_examples=50))


_SETTINGS = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


class _Newer:
    """A backend whose library has another version."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.version = f"{backend.version}.1"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _imported(model: onnx.ModelProto, folder: Path) -> Model:
    path = folder / "case.onnx"
    onnx.save(model, path)
    return import_model(open_model(path))


def _another(value: OptionValue) -> OptionValue:
    if isinstance(value, bool):
        return not value
    return f"{value}x" if isinstance(value, str) else value + 1


def _as_it_is(model: onnx.ModelProto) -> onnx.ModelProto:
    return model


def _with_nine_axes(model: onnx.ModelProto) -> onnx.ModelProto:
    for value in model.graph.input:
        shape = value.type.tensor_type.shape
        for _ in range(9 - len(shape.dim)):
            shape.dim.add().dim_value = 1
    return model


def _with_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
    for place, constant in enumerate(model.graph.initializer):
        if constant.data_type == onnx.TensorProto.FLOAT:
            whole = onnx.numpy_helper.to_array(constant).astype("int32")
            model.graph.initializer[place].CopyFrom(
                onnx.numpy_helper.from_array(whole, constant.name)
            )
    return model


def _renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give every tensor and node a hostile name of its own."""

    def hostile(name: str) -> str:
        return f"{name}{HOSTILE}" if name else name

    graph = model.graph
    for node in graph.node:
        node.name = hostile(node.name)
        node.input[:] = [hostile(name) for name in node.input]
        node.output[:] = [hostile(name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = hostile(value.name)
    return model
