"""What a profile says of the model's layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from edgekit.base.roof import JUDGED, Work, known_work, roof_of
from edgekit.bundle.manifest_steps import NO_KERNELS, LibraryStep
from edgekit.compiler.steps import StepKind
from edgekit.store.run_profile import RunProfile, RunStep, RunTimeline
from edgekit.verbs.bench_report import KernelShare, Profile

if TYPE_CHECKING:
    from edgekit.base.measurer import Measurer
    from edgekit.bundle.manifest import Manifest
    from edgekit.devices.base import BenchSamples
    from edgekit.devices.kernel_times import KernelTime, KernelTimes

NO_STEPS: Mapping[str, LibraryStep] = MappingProxyType({})


def steps_by_name(manifest: Manifest) -> Mapping[str, LibraryStep]:
    """Return what a profile of the bundle measures; nothing for bundles that do not say it."""
    steps = manifest.steps
    if manifest.bare_metal is not None:
        steps = tuple(
            LibraryStep(step.name, "kernel", step.layers, step.maker, None, None, step.reads)
            for step in manifest.bare_metal.steps
        )
    return {step.name: step for step in steps}


def profile_of(
    times: KernelTimes,
    steps: Mapping[str, LibraryStep],
    median: float,
    measured_by: Measurer = "hardware",
) -> Profile:
    """Return the times by step, which add up to the median. Without `steps`, all are kernels."""
    total = sum(kernel.nanoseconds for kernel in times.kernels)
    computing = [one for one in times.kernels if computes_layers(one.name, steps)]
    slowest_first = sorted(computing, key=lambda one: (-one.nanoseconds, one.name))
    works = {one.name: _work(one, steps.get(one.name)) for one in computing}
    known = (work for work in works.values() if work is not None)
    roof = roof_of(known) if measured_by in JUDGED else None
    shares = {name: roof.share(work) for name, work in works.items() if roof and work}
    return Profile(
        inferences=times.inferences,
        seconds=total / 1e9,
        kernels=tuple(
            replace(_share(one, times, steps.get(one.name), median), of_best=shares.get(one.name))
            for one in slowest_first
        ),
        copies=(total - sum(one.nanoseconds for one in computing)) / 1e9,
        rest=median - total / 1e9,
    )


def _work(one: KernelTime, step: LibraryStep | None) -> Work | None:
    if step is None:
        return None
    return known_work(step.operations, step.bytes, one.nanoseconds / 1e9)


def timed_steps(measured: BenchSamples, steps: Mapping[str, LibraryStep]) -> RunProfile | None:
    """Return the times of all steps in the order in which they run; None if none were measured.

    A microcontroller's counts go before times, as they do in the run.
    """
    if measured.counted is not None:
        counts = {step.name: (step.count, 1.0) for step in measured.counted.steps}
        return _timed(counts, steps, len(measured.counted.counts)) if counts else None
    times = measured.kernels
    if times is None:
        return None
    found = {one.name: (one.nanoseconds, one.calls / times.inferences) for one in times.kernels}
    profile = _timed(found, steps, times.inferences)
    place = {step.name: number for number, step in enumerate(profile.steps)}
    places = [place[one.name] for one in times.kernels]
    timeline = tuple(
        RunTimeline(
            one.nanoseconds,
            tuple(places[kernel] for kernel in one.kernels),
            one.starts,
            one.durations,
        )
        for one in times.timeline
    )
    return replace(profile, timeline=timeline)


def _timed(
    times: Mapping[str, tuple[int, float]], steps: Mapping[str, LibraryStep], inferences: int
) -> RunProfile:
    """Describe the steps that the manifest lists, then those that it does not."""
    kind: StepKind = "copy" if steps else "kernel"
    unlisted = (LibraryStep(name, kind, (), "", None) for name in times if name not in steps)
    return RunProfile(
        inferences,
        tuple(
            RunStep(
                name=step.name,
                kind=step.kind,
                layers=step.layers,
                owner=step.owner,
                bytes=step.bytes,
                operations=step.operations,
                reads=step.reads,
                time=times.get(step.name, (0, 0.0))[0],
                calls=times.get(step.name, (0, 0.0))[1],
            )
            for step in (*steps.values(), *unlisted)
        ),
    )


def computes_layers(name: str, steps: Mapping[str, LibraryStep]) -> bool:
    """Return whether a step is more than a copy, a check, or a call of TVM's machine."""
    if not steps:
        return True
    return name in steps and steps[name].kind not in NO_KERNELS


def _share(
    one: KernelTime, times: KernelTimes, step: LibraryStep | None, median: float
) -> KernelShare:
    seconds = one.nanoseconds / 1e9
    return KernelShare(
        name=one.name,
        layers=() if step is None else step.layers,
        kind="kernel" if step is None else step.kind,
        owner="" if step is None else step.owner,
        calls=one.calls / times.inferences,
        seconds=seconds,
        share=seconds / median if median else 0.0,
        device_seconds=None if one.device_nanoseconds is None else one.device_nanoseconds / 1e9,
    )
