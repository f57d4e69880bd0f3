"""From a model file to a device that is proven to compute it right, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import VerificationError
from edgekit.base.events import SILENT, Events
from edgekit.building.build import BuildResult, build
from edgekit.building.request import BuildRequest
from edgekit.devices.base import BenchPlan, Installed
from edgekit.devices.linux.versions import Recorded
from edgekit.farm.lending import opened_in_turn
from edgekit.project.file import DEFAULT_KEEP
from edgekit.verbs.bench import bench
from edgekit.verbs.bench_report import BenchSummary
from edgekit.verbs.fleet import Outcome, on_each
from edgekit.verbs.verify import VerifyReport, raise_if_failed, verify

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import Device
    from edgekit.devices.choice import Candidate
    from edgekit.models.comparison import Widening

SHORT_BENCH = BenchPlan(warmup=3, runs=10, seconds=1.0)
_LONGEST_SHORT_BENCH = 15.0
"""Seconds. A model that takes long is run less often: `edgekit bench` measures it at leisure."""
_FEWEST_RUNS = 3


@dataclass(frozen=True)
class DeployPlan:
    """What a deployment does beside bringing a bundle to a device."""

    verify: bool = True
    widening: Widening | None = None
    bench: BenchPlan | None = SHORT_BENCH
    """None measures nothing."""
    keep: int = DEFAULT_KEEP
    """How many versions of the model stay on the device."""


@dataclass(frozen=True)
class Deployed:
    """What came of it on one device."""

    device: str
    installed: Installed | None
    """None where nothing has to be: on this machine."""
    version: Recorded | None
    """What the new version came after; None where a device has no versions."""
    verification: VerifyReport | None
    """None where it was not asked for: then nothing is known about the numbers."""
    bench: BenchSummary | None
    """Without its samples, which are many: `edgekit bench` gives them."""


@dataclass(frozen=True)
class DeployReport(Deployed):
    build: BuildResult


@dataclass(frozen=True)
class FleetReport:
    """One build on several devices."""

    build: BuildResult
    devices: tuple[Outcome[Deployed], ...]


def deploy(
    request: BuildRequest,
    device: Device,
    out: Path,
    *,
    plan: DeployPlan | None = None,
    archive: bool = False,
    dump_ir: Path | None = None,
    use_cache: bool = True,
    events: Events = SILENT,
) -> DeployReport:
    """Build, run on the device, compare with the oracle, measure. Wrong numbers are an error, and
    what was current on the device stays so."""
    with on_the_way(device, events) as reached:
        built = build(
            request, out, archive=archive, dump_ir=dump_ir, use_cache=use_cache, events=events
        )
        done = deploy_bundle(built.bundle, reached, plan or DeployPlan(), events)
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
    """Build once, then deploy to all of them at the same time.

    Says how it came out on each; `fleet.raise_if_any_failed` makes a failure an error.
    """
    chosen = plan or DeployPlan()
    built = build(request, out, use_cache=use_cache, events=events)

    def work(device: Device, voice: Events) -> Deployed:
        return deploy_bundle(built.bundle, device, chosen, voice)

    return FleetReport(built, on_each(devices, work, events))


def on_the_way(device: Device, events: Events) -> AbstractContextManager[Device]:
    """The device, being reached while something else is done, where it is far away."""
    from edgekit.devices.linux.ssh import SshDevice

    if isinstance(device, SshDevice):
        return device.on_the_way(events=events)
    return nullcontext(device)


def deploy_bundle(
    bundle: Bundle, device: Device, plan: DeployPlan, events: Events = SILENT
) -> Deployed:
    """From a bundle on: it becomes the device's current version once it is proven."""
    verification = measured = None
    with opened_in_turn(device, bundle, "deploy", events) as session:
        if plan.verify:
            verification = verify(bundle, session, widening=plan.widening, events=events)
            try:
                raise_if_failed(verification)
            except VerificationError as error:
                session.log_failure("verified", error)
                raise
        if plan.bench is not None:
            measuring = brief(plan.bench, verification)
            measured = bench(bundle, session, measuring, events, purpose="deploy").summary()
        version = session.make_current(
            verified=verification is not None,
            median=measured.median if measured is not None else None,
            keep=plan.keep,
        )
    return Deployed(device.name, session.installed, version, verification, measured)


def brief(plan: BenchPlan, verification: VerifyReport | None) -> BenchPlan:
    """Return the plan, with fewer runs where they would take long, after a verification that did:
    what its further vectors took counts as well."""
    if verification is None or plan != SHORT_BENCH:
        return plan
    seconds = [sample.seconds for sample in verification.samples]
    once = max(seconds, default=0.0)
    left = max(_LONGEST_SHORT_BENCH - (sum(seconds) - once), 0.0)
    if once * (plan.warmup + plan.runs) <= left:
        return plan
    runs = max(int(left / once) - 1, _FEWEST_RUNS)
    return replace(plan, warmup=1, runs=min(runs, plan.runs), seconds=0.0)
