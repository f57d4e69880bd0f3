"""Measures a bundle's speed and memory on a device, and how reliable the figures are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import MissingToolError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.roof import Limits
from edgekit.base.wording import counted, number
from edgekit.bundle.sizes import sizes_in_words
from edgekit.devices.base import MOST_RUNS, BenchPlan, BenchSamples, Counted, RunsBundles, Session
from edgekit.verbs.bench_report import (
    BenchReport,
    CountedSummary,
    Memory,
    Power,
    StepShare,
)
from edgekit.verbs.profile import NO_STEPS, profile_of, steps_by_name, timed_steps
from edgekit.verbs.recording import keep_bench
from edgekit.verbs.trace import write_trace

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.bundle.folder import Bundle
    from edgekit.bundle.manifest_steps import LibraryStep
    from edgekit.devices.sensors.readings import Observed

_NOT_THE_BOARD: Mapping[Measurer, str] = {
    "emulator": "emulated: the times say nothing about the board's",
    "simulator": "simulated: the times say nothing about the board's",
    "engine": "in an engine on this machine: on another machine the times differ",
}
_FEWEST_RUNS = 10
PROFILED = 10
"""The number of profiled inferences, unless another is given."""
_MOST_TRACED = 5
_NOISY_SPREAD = 1.2
"""p90 over median; an undisturbed machine stays well below."""
_NOISY_LOAD = 0.5
"""The load of other processes, in cores, above which they disturb."""
_FEW_RUNS = 100
"""The runs below which the 99th percentile is close to the slowest run."""


def bench(
    bundle: Bundle,
    device: RunsBundles,
    plan: BenchPlan,
    events: Events = SILENT,
    *,
    inputs: Mapping[str, Array] | None = None,
    purpose: str | None = None,
    store: str | None = None,
    trace: Path | None = None,
) -> BenchReport:
    """Measure one inference after another on the reference input, or on the inputs given.

    A timeline of the plan's traced inferences goes into the file `trace`. With a purpose, the
    measurement goes into `store`, or into the user's own store.
    """
    chosen = bundle.reference_inputs() if inputs is None else inputs
    with device.opened(bundle, purpose=purpose or "bench", events=events) as session:
        samples, measured_by = session.bench(chosen, plan), session.measured_by
        limits = _limits(session, samples.threads, events) if plan.profiled else None
    manifest = bundle.manifest
    names = (bundle.path, manifest.board.name, device.name)
    steps = steps_by_name(manifest)
    report = summarise_samples(*names, samples, measured_by, steps)
    report = _with_limits(report, limits)
    if trace is not None:
        title = f"{bundle.path.name} on {device.name}"
        write_trace(trace, title, samples.kernels, steps, measured_by)
        report = replace(report, trace=trace)
    specs = [entry.spec for entry in manifest.inputs]
    report = replace(report, sizes=sizes_in_words(specs, chosen))
    report = replace(report, notes=(*_less_than_planned(plan, report), *report.notes))
    if purpose is None:
        return report
    return replace(report, kept_as=keep_bench(bundle, report, purpose, store, events))


def _limits(session: Session, threads: int, events: Events) -> Limits | None:
    """Measure what the hardware can do at most; an emulator's has no meaning."""
    if session.measured_by != "hardware":
        return None
    try:
        return session.limits(threads)
    except MissingToolError as error:
        events.note(f"the limits of {session.name} are not measured: {error.message}")
        return None


def _with_limits(report: BenchReport, limits: Limits | None) -> BenchReport:
    if limits is None or report.profile is None or report.timed is None:
        return report
    return replace(
        report,
        profile=replace(report.profile, limits=limits),
        timed=replace(report.timed, limits=limits),
    )


def plan_bench(
    runs: int | None,
    seconds: float | None,
    warmup: int,
    threads: int | None,
    profiled: int = 0,
    *,
    traced: bool = False,
) -> BenchPlan:
    """Make a plan from a user's options. Given runs or seconds, the other has no default."""
    if traced:
        profiled = profiled or PROFILED
    default = BenchPlan()
    if runs is not None and runs > MOST_RUNS:
        raise UsageError(
            f"{counted(runs, 'run')} are more than one measurement takes",
            hint=f"say {option('runs', MOST_RUNS)} or fewer",
        )
    if runs is None:
        runs = default.runs if seconds is None else _FEWEST_RUNS
        seconds = default.seconds if seconds is None else seconds
    return BenchPlan(
        warmup,
        runs,
        seconds or 0.0,
        threads,
        profiled,
        True,
        min(profiled, _MOST_TRACED),
    )


def summarise_samples(
    bundle: Path,
    board: str,
    device: str,
    measured: BenchSamples,
    measured_by: Measurer,
    steps: Mapping[str, LibraryStep] = NO_STEPS,
) -> BenchReport:
    """Summarise what a device measured; `steps` say what the names in a profile mean."""
    seconds = [nanoseconds / 1e9 for nanoseconds in measured.nanoseconds]
    ordered = sorted(seconds)
    mean = math.fsum(ordered) / len(ordered)
    median, p90 = percentile(ordered, 50), percentile(ordered, 90)
    host = measured.host_before
    return BenchReport(
        bundle=bundle,
        board=board,
        device=device,
        measured_by=measured_by,
        median=median,
        p90=p90,
        p99=percentile(ordered, 99),
        minimum=ordered[0],
        mean=mean,
        stdev=_deviation(ordered, mean),
        throughput=1 / mean if mean else 0.0,
        runs=len(ordered),
        warmup=measured.warmup,
        threads=measured.threads,
        load=None if measured.load_nanoseconds is None else measured.load_nanoseconds / 1e9,
        memory=Memory(measured.memory.before_model, measured.memory.peak, measured.memory.of_model),
        counted=None if measured.counted is None else _counted(measured.counted),
        governor=measured.host_after.governor,
        frequency_mhz=measured.host_after.frequency_mhz,
        load_average=host.load_average,
        busy=is_busy(measured),
        preemptions=measured.preemptions,
        power=_power(measured.observed, mean),
        temperature=_hottest(measured.observed),
        throttled=None if measured.observed is None else measured.observed.throttled,
        state=None if measured.observed is None else measured.observed.state,
        notes=_notes(measured, measured_by, median, p90),
        sizes="",
        samples=tuple(seconds),
        profile=None
        if measured.kernels is None
        else profile_of(measured.kernels, steps, median, measured_by),
        timed=timed_steps(measured, steps),
    )


def _power(observed: Observed | None, seconds: float) -> Power | None:
    """Return the power and energy of one inference, which takes so many seconds."""
    if observed is None or observed.power is None:
        return None
    watts, idle = observed.power.watts, observed.power.idle_watts
    return Power(
        observed.power.source,
        watts,
        idle,
        watts * seconds,
        None if idle is None else max(watts - idle, 0.0) * seconds,
    )


def _hottest(observed: Observed | None) -> float | None:
    warmth = observed.warmth if observed is not None else None
    return None if warmth is None else warmth.hottest


def _counted(found: Counted) -> CountedSummary:
    ordered = sorted(found.counts)
    median = round(percentile(ordered, 50))
    return CountedSummary(
        unit=found.unit,
        median=median,
        minimum=ordered[0],
        maximum=ordered[-1],
        clock=found.clock,
        steps=tuple(
            StepShare(step.name, step.count, step.count / median if median else 0.0)
            for step in found.steps
        ),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Interpolate between the two nearest ranks, as numpy does by default."""
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _less_than_planned(plan: BenchPlan, report: BenchReport) -> tuple[str, ...]:
    notes = []
    if report.runs == MOST_RUNS and plan.runs < MOST_RUNS:
        notes.append(f"stopped at {MOST_RUNS} runs, though {plan.seconds:g} s may not be over")
    if plan.threads not in (None, report.threads):
        notes.append(
            f"asked for {counted(plan.threads, 'thread')}, TVM's runtime used {report.threads}"
        )
    return tuple(notes)


def _deviation(values: Sequence[float], mean: float) -> float:
    """Return the standard deviation of a sample (n - 1); 0 for a single run."""
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def is_busy(measured: BenchSamples) -> bool:
    """Return whether other processes used the cores that the model was about to use."""
    host = measured.host_before
    free = max(host.cores - measured.threads, 0)
    return host.load_average is not None and host.load_average > free + _NOISY_LOAD


def _notes(
    measured: BenchSamples, measured_by: Measurer, median: float, p90: float
) -> tuple[str, ...]:
    if measured.counted is not None and measured.counted.unit == "instructions":
        return ("emulated: its instructions are counted one by one; times are the emulator's own",)
    notes = [*measured.warned, *measured.told]
    if measured_by in _NOT_THE_BOARD:
        notes.append(_NOT_THE_BOARD[measured_by])
    host = measured.host_before
    if measured.threads > host.cores:
        notes.append(f"{counted(measured.threads, 'thread')} shared {counted(host.cores, 'core')}")
    if is_busy(measured):
        notes.append(
            f"the machine was busy: load average {host.load_average:.1f} on "
            f"{counted(host.cores, 'core')} before the model's {measured.threads} began"
        )
    if median and p90 > _NOISY_SPREAD * median:
        notes.append(
            f"the times are spread: the slowest tenth took {number(p90 / median)} times the median "
            f"or more"
        )
    if host.governor is not None and set(host.governor.split(",")) != {"performance"}:
        notes.append(f"the CPU governor {host.governor} may change the clock while measuring")
    if len(measured.nanoseconds) < _FEW_RUNS:
        notes.append(
            f"p99 of {counted(len(measured.nanoseconds), 'run')} is close to the slowest one"
        )
    return tuple(notes)
