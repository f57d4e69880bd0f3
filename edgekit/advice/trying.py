"""Builds, verifies and measures every option on a device, without replacing its current version."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.advice.best_runs import PURPOSE, TUNED_PURPOSE
from edgekit.advice.words import BestRun, Considered, Option, SearchPlan
from edgekit.base.errors import EdgekitError
from edgekit.base.events import Events
from edgekit.building.choose import BuildOptions, make_request
from edgekit.building.request import BuildRequest
from edgekit.compiler.schedules.choices import NO_CHOICES
from edgekit.devices.device import Device
from edgekit.models.model import ModelSource
from edgekit.project.workspace import WorkspaceData
from edgekit.verbs.bench_report import BenchReport

_NOISE_SAMPLES = 8


@dataclass(frozen=True)
class Trials:
    """The model, the device, and the search for faster kernels."""

    workspace: WorkspaceData
    source: ModelSource
    device: Device
    search: SearchPlan | None
    """The search; None uses kernels that were measured before, if any."""
    events: Events


def measured(trials: Trials, seen: Considered) -> Considered:
    """Return the measured options; one that fails is unsupported, with the reason."""
    done = []
    with tempfile.TemporaryDirectory(prefix="edgekit-recommend-") as folder:
        for number, option in enumerate(seen.options):
            if not option.supported:
                done.append(option)
                continue
            place = Path(folder) / str(number)
            try:
                done.append(_tried(trials, seen, option, place))
            except EdgekitError as error:
                trials.events.warn(f"{seen.board.name}: {option.name} failed: {error.message}")
                answers = replace(option.answers, supported=f"failed: {error.message}")
                # Calibrating with noise spoils the accuracy, which is no argument against int8.
                done.append(replace(option, supported=option.kind == "int8", answers=answers))
    return replace(seen, options=tuple(done))


def _tried(trials: Trials, seen: Considered, option: Option, place: Path) -> Option:
    request = _request(trials, seen, option, place)
    if request is None:
        return option
    purpose = TUNED_PURPOSE if option.kind == "tuned" else PURPOSE
    report = _benched(trials, request, place, purpose)
    counted = report.counted
    median = report.median if counted is None else float(counted.median)
    unit = "seconds" if counted is None else counted.unit
    known = BestRun(
        median, unit, report.measured_by, trials.device.name, "now", report.kept_as or ""
    )
    return replace(option, known=known)


def _request(trials: Trials, seen: Considered, option: Option, place: Path) -> BuildRequest | None:
    """Return the build of an option, None if no kernel is or will be tuned."""
    source = trials.source
    path = _in_int8(trials, place) if option.kind == "int8" else source.path
    options = BuildOptions(
        path,
        seen.board,
        offload=option.offload,
        shapes=source.shapes,
        constants=source.constants,
    )
    request = make_request(trials.workspace, options)
    if option.kind == "kernels":
        return replace(request, choices=NO_CHOICES)
    if option.kind == "tuned":
        if trials.search is not None:
            from edgekit.tuning.tune import quick_tune

            seconds, again = trials.search.seconds, trials.search.again
            request, _ = quick_tune(request, trials.device, seconds, trials.events, again=again)
        return request if request.choices.of_kernel else None
    return request


def _in_int8(trials: Trials, place: Path) -> Path:
    """Quantize the model with noise: the speed is real, the outputs are meaningless."""
    from edgekit.verbs.quantization.quantiser import Settings
    from edgekit.verbs.quantize import QuantizeRequest, quantize

    place.mkdir(parents=True)
    out = place / f"{trials.source.name}-int8.onnx"
    quantize(QuantizeRequest(trials.source, out, Settings(), random=_NOISE_SAMPLES), trials.events)
    return out


def _benched(trials: Trials, request: BuildRequest, place: Path, purpose: str) -> BenchReport:
    from edgekit.building.build import build
    from edgekit.verbs.bench import bench
    from edgekit.verbs.deploy import SHORT_BENCH, shorten
    from edgekit.verbs.verify import raise_if_failed, verify

    device, events = trials.device, trials.events
    bundle = build(request, place / "bundle", events=events).bundle
    with device.opened(bundle, purpose=PURPOSE, events=events) as session:
        verification = verify(bundle, session, events=events)
        raise_if_failed(verification)
        plan = shorten(SHORT_BENCH, verification)
        return bench(bundle, session, plan, events, purpose=purpose, store=request.store)
