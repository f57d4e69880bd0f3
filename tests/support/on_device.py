"""A device opened for one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.base.arrays import Array
from edgekit.base.events import SILENT, Events
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import BenchPlan, BenchSamples, RunResult, RunsBundles


def run_on(
    device: RunsBundles,
    bundle: Bundle,
    inputs: Mapping[str, Array] | None = None,
    events: Events = SILENT,
) -> RunResult:
    """Run on the reference input unless others are given."""
    with device.opened(bundle, events=events) as session:
        return session.run(bundle.reference_inputs() if inputs is None else inputs)


def run_all_on(
    device: RunsBundles, bundle: Bundle, samples: Sequence[Mapping[str, Array]]
) -> list[RunResult]:
    with device.opened(bundle) as session:
        return list(session.run_all(samples))


def bench_on(
    device: RunsBundles, bundle: Bundle, plan: BenchPlan, events: Events = SILENT
) -> BenchSamples:
    with device.opened(bundle, events=events) as session:
        return session.bench(bundle.reference_inputs(), plan)
