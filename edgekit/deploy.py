"""From a model file to a device that is proven to compute it right, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bench import BenchPlan, BenchSummary, bench
from edgekit.build import BuildRequest, BuildResult, build
from edgekit.devices.base import Installed
from edgekit.events import SILENT, Events
from edgekit.verify import VerifyReport, raise_if_failed, verify

if TYPE_CHECKING:
    from edgekit.comparison import Widening
    from edgekit.devices.base import Device

SHORT_BENCH = BenchPlan(warmup=3, runs=10, seconds=1.0)


@dataclass(frozen=True)
class DeployReport:
    build: BuildResult
    installed: Installed | None
    """None where nothing has to be: on this machine."""
    verification: VerifyReport
    bench: BenchSummary
    """Without its samples, which are many: `edgekit bench` gives them."""


def deploy(
    request: BuildRequest,
    device: Device,
    out: Path,
    *,
    plan: BenchPlan = SHORT_BENCH,
    widening: Widening | None = None,
    archive: bool = False,
    dump_ir: Path | None = None,
    use_cache: bool = True,
    events: Events = SILENT,
) -> DeployReport:
    """Build, run on the device, compare with the oracle, measure. Wrong numbers are an error, and
    nothing is measured then."""
    built = build(
        request, out, archive=archive, dump_ir=dump_ir, use_cache=use_cache, events=events
    )
    with device.opened(built.bundle, events=events) as session:
        verification = verify(built.bundle, session, widening=widening, events=events)
        raise_if_failed(verification)
        measured = bench(built.bundle, session, plan, events)
    return DeployReport(built, session.installed, verification, measured.summary())
