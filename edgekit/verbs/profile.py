"""What a profile says of the model's layers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from edgekit.bundle.manifest_steps import NO_KERNELS, LibraryStep
from edgekit.verbs.bench_report import KernelShare, Profile

if TYPE_CHECKING:
    from edgekit.bundle.manifest import Manifest
    from edgekit.devices.kernel_times import KernelTime, KernelTimes

NO_STEPS: Mapping[str, LibraryStep] = MappingProxyType({})


def steps_by_name(manifest: Manifest) -> Mapping[str, LibraryStep]:
    """Return what a profile of the bundle measures; nothing for bundles that do not say it."""
    steps = manifest.steps
    if manifest.bare_metal is not None:
        steps = tuple(
            LibraryStep(step.name, "kernel", step.layers, step.maker, None)
            for step in manifest.bare_metal.steps
        )
    return {step.name: step for step in steps}


def profile_of(times: KernelTimes, steps: Mapping[str, LibraryStep], median: float) -> Profile:
    """Return the times by step, which add up to the median. Without `steps`, all are kernels."""
    total = sum(kernel.nanoseconds for kernel in times.kernels)
    computing = [one for one in times.kernels if computes_layers(one.name, steps)]
    slowest_first = sorted(computing, key=lambda one: (-one.nanoseconds, one.name))
    return Profile(
        inferences=times.inferences,
        seconds=total / 1e9,
        kernels=tuple(_share(one, times, steps.get(one.name), median) for one in slowest_first),
        copies=(total - sum(one.nanoseconds for one in computing)) / 1e9,
        rest=median - total / 1e9,
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
    )
