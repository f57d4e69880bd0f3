"""The methods of a workspace that use devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from edgekit.api.base import check_can_be_tuned, name_of
from edgekit.api.choice import (
    DeployKeywords,
    DeviceChoice,
    DeviceKeywords,
    MeasureKeywords,
    RunKeywords,
    TargetKeywords,
    VerifyKeywords,
    device_for_board,
    device_for_bundle,
    entries_of,
    handle_of,
    several_devices,
    with_board_of,
)
from edgekit.api.cluster import cluster_of
from edgekit.api.device import (
    BundleSession,
    DeviceHandle,
    bench_plan,
    cut_inputs,
    only_sample,
    trace_file,
)
from edgekit.api.inputs import Inputs, choose_samples
from edgekit.api.keywords import (
    BenchKeywords,
    BindingKeywords,
    BundleLike,
    FleetKeywords,
    PathLike,
    PlanKeywords,
    SearchKeywords,
    ShowKeywords,
    ToleranceKeywords,
    Unpack,
    without,
)
from edgekit.api.on_data import OnData
from edgekit.base.errors import InputError, UsageError
from edgekit.base.options import option
from edgekit.devices.carried import CarriedState
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.building.request import BuildRequest
    from edgekit.profiles.board import Board
    from edgekit.project.devices import DeviceEntry
    from edgekit.tuning.tune import TuneReport
    from edgekit.tuning.tune_c import TunedInC
    from edgekit.verbs.bench_report import BenchReport
    from edgekit.verbs.debug import DebugReport
    from edgekit.verbs.deploy import DeployReport, FleetReport
    from edgekit.verbs.rollback import RollbackReport
    from edgekit.verbs.run import RunReport
    from edgekit.verbs.verify import VerifyReport

_DEFAULT_TRIALS = 1000


class OnDevices(OnData):
    """The methods that run bundles on devices."""

    def devices(self) -> dict[str, DeviceEntry]:
        """Return all known devices by name: the project's, then the user's own."""
        return entries_of(self._setting)

    def device(
        self,
        name: str | None = None,
        *,
        board: str | Board | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> DeviceHandle:
        """Return a known device; "local" is this machine.

        Without a name, the only known device, or the first free one of `board`.
        """
        chosen = None if board is None else self.data.board(board)
        return handle_of(self._setting, name, chosen, twin=False, timeout=timeout)

    def twin(
        self,
        board: str | Board | None = None,
        *,
        name: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> DeviceHandle:
        """Return a board's emulated twin, which is started when it is opened."""
        chosen = None if board is None and name is not None else self.data.board(board)
        return handle_of(self._setting, name, chosen, twin=True, timeout=timeout)

    def deploy(
        self,
        model: PathLike | None = None,
        out: PathLike | None = None,
        *,
        use_cache: bool = True,
        tune: float | None = None,
        tune_again: bool = False,
        **how: Unpack[DeployKeywords],
    ) -> DeployReport:
        """Build, run on a device, compare with the oracle, measure, and make it current.

        Wrong numbers raise VerificationError, and the device's current version stays.
        """
        from edgekit.models.model import check_inputs
        from edgekit.twin.machine import is_running
        from edgekit.verbs.deploy import deploy

        with self._setting.working():
            request, reach = self._target(model, how)
            if tune is not None:
                check_can_be_tuned(request.board)
            named = how.get("device")
            if how.get("twin") and not is_running(name_of(named) or request.board.name):
                check_inputs(request.source)  # a twin is not started for nothing
            device = reach()
            if tune is not None:
                request = self._tuned(request, device, tune, tune_again)
            return deploy(
                request,
                device,
                self._destination(request, out),
                plan=self._deploy_plan(how),
                use_cache=use_cache,
                events=self._setting.events,
            )

    def fleet(
        self,
        model: PathLike | None = None,
        devices: Sequence[str] | None = None,
        out: PathLike | None = None,
        *,
        use_cache: bool = True,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        **how: Unpack[FleetKeywords],
    ) -> FleetReport:
        """Build once and deploy to several devices at the same time; None is all of the board.

        A failure on one device stops no other: the report holds the error of each.
        """
        from edgekit.verbs.deploy import deploy_to_each

        with self._setting.working():
            given = without(how, PlanKeywords)
            if devices:
                given = with_board_of(self._setting, given, devices[0])
            request = self.request(model, **given)
            return deploy_to_each(
                request,
                several_devices(self._setting, request.board, devices, timeout),
                self._destination(request, out),
                plan=self._deploy_plan(how),
                use_cache=use_cache,
                events=self._setting.events,
            )

    def run(
        self,
        bundle: BundleLike,
        inputs: Inputs = None,
        *,
        allow_nonfinite: bool = False,
        **where: Unpack[DeviceKeywords],
    ) -> dict[str, Array]:
        """Run one inference on a device of the bundle's board, and return the outputs by name.

        `inputs` are arrays by name, or files; without any, the bundle's reference input is run.
        """
        with self.opened(bundle, "run", **where) as session:
            return session.run(inputs, allow_nonfinite=allow_nonfinite)

    def run_report(
        self,
        bundle: BundleLike,
        inputs: Inputs = None,
        *,
        allow_nonfinite: bool = False,
        **how: Unpack[RunKeywords],
    ) -> RunReport:
        """Run a bundle on one or many samples, and summarise the outputs; `out` keeps them."""
        from edgekit.verbs.run import RunPlan, run

        with self._setting.working():
            opened = self._setting.bundle(bundle)
            chosen = choose_samples(opened, inputs, allow_nonfinite, self.data.start)
            shown = without(how, DeviceKeywords)
            shown |= {name: self._optional(shown.get(name)) for name in ("out", "draw")}
            return run(
                opened,
                device_for_bundle(self._setting, opened, **without(how, ShowKeywords)),
                RunPlan(**shown),
                samples=chosen.samples,
                total=chosen.count,
                events=self._setting.events,
            )

    def verify(
        self,
        bundle: BundleLike,
        inputs: Inputs = None,
        *,
        model: PathLike | None = None,
        allow_nonfinite: bool = False,
        tolerance: ToleranceKeywords | None = None,
        **how: Unpack[VerifyKeywords],
    ) -> VerifyReport:
        """Compare a bundle's outputs on a device with an independent oracle's.

        Without `inputs`, with the expected outputs in the bundle; otherwise `model` is the file
        that the bundle was built from, by default the project's. The report holds a failure too:
        look at `passed`.
        """
        from edgekit.models.comparison import Widening
        from edgekit.verbs.verify import verify

        with self._setting.working():
            opened = self._setting.bundle(bundle)
            chosen = choose_samples(opened, inputs, allow_nonfinite, self.data.start)
            source = None
            project = self.data.project
            of_project = project is not None and project.model is not None
            if chosen.samples is not None and (model is not None or of_project):
                source = self._source(model, without(how, DeviceKeywords))
            return verify(
                opened,
                device_for_bundle(self._setting, opened, **without(how, BindingKeywords)),
                samples=chosen.samples,
                source=source,
                widening=Widening(**(tolerance or {})),
                total=chosen.count,
                events=self._setting.events,
            )

    def debug(
        self,
        model: PathLike | None = None,
        *,
        of: PathLike | None = None,
        against: PathLike | None = None,
        tolerance: ToleranceKeywords | None = None,
        **how: Unpack[TargetKeywords],
    ) -> DebugReport:
        """Compare the values inside a model on a device with an oracle's, layer by layer.

        `model` is a .onnx, .tflite or .pt2 file, or a bundle that was built from the file `of`, by
        default the project's model. The oracle runs `against`, by default the same model. The
        report holds a failure too: look at `first_off`.
        """
        from edgekit.building.build import build
        from edgekit.models.comparison import Widening
        from edgekit.models.inner_value import InnerValue
        from edgekit.models.inner_values import inner_model, slices
        from edgekit.verbs.debug import Variant, debug

        with self._setting.working(), TemporaryDirectory(prefix="edgekit-") as scratch:
            model, given = self._debugged(model, of, how)
            request, reach = self._target(model, given)
            name = request.source.path.name
            shapes = request.source.shapes
            own = inner_model(request.source.path, shapes)
            other = None if against is None else inner_model(self.data.path(against), shapes)

            def variant(place: int, values: Sequence[InnerValue]) -> Variant:
                folder = Path(scratch, str(place))
                own.write(folder / "own" / name, values)
                made = self._target(folder / "own" / name, given)[0]
                expected = made.source
                if other is not None:
                    other.write(folder / "other" / name, values)
                    expected = self._target(folder / "other" / name, given)[0].source
                bundle = build(made, folder / "bundle", events=self._setting.events).bundle
                return Variant(bundle, expected, values)

            return debug(
                (partial(variant, *part) for part in enumerate(slices(own, other or own))),
                reach(),
                widening=Widening(**(tolerance or {})),
                events=self._setting.events,
            )

    def _debugged(
        self, model: PathLike | None, of: PathLike | None, how: Mapping[str, Any]
    ) -> tuple[PathLike | None, Mapping[str, Any]]:
        """Return the model of a bundle, and what it was built with; or what was given."""
        from edgekit.bundle.folder import looks_like_a_bundle
        from edgekit.models.model import as_built

        if model is None or not looks_like_a_bundle(self.data.path(model)):
            if of is not None:
                raise UsageError(
                    f"{option('of')} names the model of a bundle, and this is no bundle",
                    hint="leave it out",
                )
            return model, how
        manifest = self._setting.bundle(model).manifest
        inputs, sha256 = [entry.spec for entry in manifest.inputs], manifest.model.sha256
        shapes = {spec.name: spec.shape for spec in inputs}
        for binding in ({}, {"shapes": shapes}):
            source = as_built(self._source(of, binding), sha256, inputs)
            if source.sha256 == sha256:
                break
        else:
            raise InputError(
                f"{source.path} is not the model that {model} was built from",
                hint=f"name that file with {option('of', 'MODEL')}",
            )
        offload = dict.fromkeys(region.backend for region in manifest.regions)
        built = {
            "board": manifest.board.name,
            "offload": list(offload),
            "shapes": source.shapes,
            "constants": source.constants,
            "reshape": source.adaptation.reshape,
            "ends": source.adaptation.ends,
        }
        return source.path, {**built, **{key: value for key, value in how.items() if value}}

    def bench(
        self,
        bundle: BundleLike,
        inputs: Inputs = None,
        *,
        allow_nonfinite: bool = False,
        at: Mapping[str, Any] | None = None,
        **how: Unpack[MeasureKeywords],
    ) -> BenchReport:
        """Measure latency, throughput and memory of a bundle, and keep them in the store.

        `at` cuts the reference inputs to other sizes: `{"ids": "1x64"}`.
        """
        from edgekit.verbs.bench import bench

        with self._setting.working():
            opened = self._setting.bundle(bundle)
            plan = bench_plan(without(how, DeviceKeywords))
            chosen = choose_samples(opened, inputs, allow_nonfinite, self.data.start)
            sample = None if not at else cut_inputs(opened, at, inputs)
            if chosen.samples is not None:
                only = only_sample(chosen.count, next(chosen.samples).inputs)
                sample = CarriedState(opened).complete(only)
            return bench(
                opened,
                device_for_bundle(self._setting, opened, **without(how, BenchKeywords)),
                plan,
                self._setting.events,
                inputs=sample,
                purpose="bench",
                store=self.data.store,
                trace=trace_file(how),
            )

    def opened(
        self, bundle: BundleLike, purpose: str = "run", **where: Unpack[DeviceKeywords]
    ) -> AbstractContextManager[BundleSession]:
        """Open a bundle on a device of its board, as `device(...).open(bundle)` does."""
        opened = self._setting.bundle(bundle)
        device = device_for_bundle(self._setting, opened, **where)
        board = opened.manifest.board.name
        return DeviceHandle(device.name, board, self._setting, lambda: device).open(
            opened, purpose=purpose
        )

    def tune(
        self,
        model: PathLike | None = None,
        devices: Sequence[str] | None = None,
        *,
        every: bool = False,
        twin: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        **how: Unpack[SearchKeywords],
    ) -> TuneReport | TunedInC:
        """Search on devices for the fastest variant of each kernel. Later builds use them.

        The search ends after `trials` candidates or `seconds`. KeyboardInterrupt keeps what was
        measured, and the same call resumes the search.
        """
        names = None if devices is None else tuple(devices)
        where = DeviceChoice(names, every, twin, timeout)
        given: dict[str, Any] = dict(how)
        seed = given.pop("search_seed", 0)
        effort = {name: given.pop(name) for name in ("trials", "seconds", "again") if name in given}
        with self._setting.working():
            given = with_board_of(self._setting, given, where.name, where.twin)
            return self.search(self.request(model, **given), where, seed=seed, **effort)

    def search(
        self, request: BuildRequest, where: DeviceChoice, **effort: Any
    ) -> TuneReport | TunedInC:
        """Search as `tune` does, for a request. `effort` are the fields of `tuning.tune.Effort`."""
        from edgekit.building.products import product_of
        from edgekit.devices.choice import Candidate
        from edgekit.tuning.recorder import Limits
        from edgekit.tuning.tune import Effort, tune
        from edgekit.tuning.tune_c import tune_c
        from edgekit.tuning.tune_devices import DeviceSelection, pool_for

        events, board, asked = self._setting.events, request.board, Effort(**effort)
        cluster = cluster_of(self._setting, request.source.format, [request.toolchain])
        if product_of(board).tuner == "steps":
            if cluster is not None:
                raise UsageError(
                    f"a search for {board.name} compiles on this host only",
                    hint=f"leave out {option('cluster')}: it is for searches of kernels",
                )
            if where.is_several:
                chosen = several_devices(self._setting, board, where.names, where.timeout)
            else:
                one = device_for_board(self._setting, board, **where.keywords)
                chosen = (Candidate(one.name, lambda events: one),)
            limits = Limits(asked.trials, asked.seconds)
            return tune_c(request, chosen, limits, again=asked.again, events=events)
        pool = pool_for(
            board,
            DeviceSelection(where.names, where.twin, where.every),
            self.devices(),
            where.timeout,
            f"tuning {request.source.name}",
            events,
        )
        if asked.trials is None and asked.seconds is None:
            asked = replace(asked, trials=_DEFAULT_TRIALS)
        return tune(request, pool, asked, events, None if cluster is None else cluster())

    def rollback(
        self,
        model: str | None = None,
        *,
        to: str | None = None,
        board: str | Board | None = None,
        **where: Unpack[DeviceKeywords],
    ) -> RollbackReport:
        """Roll back to the previous version of a model on a device, or to the digest `to`."""
        from edgekit.verbs.rollback import rollback

        with self._setting.working():
            device = self.reached(board, **where)
            return rollback(device.version_keeper(), model, to=to, events=self._setting.events)
