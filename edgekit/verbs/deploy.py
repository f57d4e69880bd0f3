"""Deploys a model: builds it, verifies it on the device, measures it, makes it current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import VerificationError
from edgekit.base.events import SILENT, Events
from edgekit.base.report import Report
from edgekit.base.wording import counted
from edgekit.building.build import build
from edgekit.building.request import BuildRequest, BuildResult
from edgekit.devices.base import BenchPlan, Installed, Recorded
from edgekit.project.file import DEFAULT_KEEP
from edgekit.verbs.bench import bench
from edgekit.verbs.bench_report import BenchSummary
from edgekit.verbs.fleet import Outcome, on_each
from edgekit.verbs.verify import VerifyReport, raise_if_failed, verify

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device
    from edgekit.models.comparison import Widening

SHORT_BENCH = BenchPlan(warmup=3, runs=10, seconds=1.0)
_LONGEST_SHORT_BENCH = 15.0
"""The most seconds of a short benchmark; slow models run fewer times."""
_FEWEST_RUNS = 3


@dataclass(frozen=True)
class DeployPlan:
    """The options of a deployment."""

    verify: bool = True
    widening: Widening | None = None
    bench: BenchPlan | None = SHORT_BENCH
    """The plan of the benchmark; None measures nothing."""
    keep: int = DEFAULT_KEEP
    """The number of versions of the model that stay on the device."""


@dataclass(frozen=True)
class Deployed(Report):
    """The result of a deployment on one device."""

    device: str
    installed: Installed | None
    """The installed files; None on this host, which needs none."""
    version: Recorded | None
    """The record of the new version and the one before; None if a device has no versions."""
    verification: VerifyReport | None
    """The verification; None if not requested: then nothing is known about the numbers."""
    bench: BenchSummary | None
    """The benchmark without its samples: `edgekit bench` returns them."""

    def headline(self) -> str:
        parts = ["not verified" if self.verification is None else "verified"]
        if self.bench is not None:
            parts.append(self.bench.headline().partition(": ")[2])
        return f"deployed to {self.device}: {', '.join(parts)}"


@dataclass(frozen=True)
class DeployReport(Deployed):
    build: BuildResult


@dataclass(frozen=True)
class FleetReport(Report):
    """One build on several devices."""

    build: BuildResult
    devices: tuple[Outcome[Deployed], ...]

    def headline(self) -> str:
        well = sum(outcome.error is None for outcome in self.devices)
        name = self.build.bundle.manifest.model.name
        return f"{name} is on {well} of {counted(len(self.devices), 'device')}"


def deploy(
    request: BuildRequest,
    device: Device,
    out: Path,
    *,
    plan: DeployPlan | None = None,
    use_cache: bool = True,
    events: Events = SILENT,
) -> DeployReport:
    """Build, run on the device, compare with the oracle, and measure.

    Wrong numbers are an error, and the device's current version stays current.
    """
    with device.prepared_early(events=events) as reached:
        built = build(request, out, use_cache=use_cache, events=events)
        done = deploy_bundle(
            built.bundle, reached, plan or DeployPlan(), events, store=request.store
        )
    return DeployReport(**vars(done), build=built)


def deploy_to_each(
    request: BuildRequest,
    devices: Sequence[Candidate],
    out: Path,
    *,
    plan: DeployPlan | None = None,
    use_cache: bool = True,
    events: Events = SILENT,
) -> FleetReport:
    """Build once, then deploy to all devices at the same time.

    The report holds failures too; `fleet.raise_if_any_failed` makes them an error.
    """
    chosen = plan or DeployPlan()
    built = build(request, out, use_cache=use_cache, events=events)

    def work(device: Device, voice: Events) -> Deployed:
        return deploy_bundle(built.bundle, device, chosen, voice, store=request.store)

    return FleetReport(built, on_each(devices, work, events))


def deploy_bundle(
    bundle: Bundle,
    device: Device,
    plan: DeployPlan,
    events: Events = SILENT,
    *,
    store: str | None = None,
) -> Deployed:
    """Verify and measure a bundle on a device, then make it the current version.

    The measurement is kept in `store`; None is the user's own.
    """
    verification = measured = None
    with device.opened(bundle, purpose="deploy", events=events) as session:
        if plan.verify:
            verification = verify(bundle, session, widening=plan.widening, events=events)
            try:
                raise_if_failed(verification)
            except VerificationError as error:
                session.log_failure("verified", error)
                raise
        if plan.bench is not None:
            measuring = shorten(plan.bench, verification)
            measured = bench(
                bundle, session, measuring, events, purpose="deploy", store=store
            ).summary()
        version = session.make_current(
            verified=verification is not None,
            median=measured.median if measured is not None else None,
            keep=plan.keep,
        )
    return Deployed(device.name, session.installed, version, verification, measured)


def shorten(plan: BenchPlan, verification: VerifyReport | None) -> BenchPlan:
    """Return the plan, with fewer runs if the verification shows that they would take long.

    The time of the verification's further vectors counts too.
    """
    if verification is None or plan != SHORT_BENCH:
        return plan
    seconds = [sample.seconds for sample in verification.samples]
    once = max(seconds, default=0.0)
    left = max(_LONGEST_SHORT_BENCH - (sum(seconds) - once), 0.0)
    if once * (plan.warmup + plan.runs) <= left:
        return plan
    runs = max(int(left / once) - 1, _FEWEST_RUNS)
    return replace(plan, warmup=1, runs=min(runs, plan.runs), seconds=0.0)
