"""The report of `edgekit partition`: numbers and reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.backends.base import Decision, Region, Tensor
from edgekit.base.measurer import Measurer
from edgekit.base.report import Report
from edgekit.base.wording import amount, counted, percent
from edgekit.bundle.manifest import Region as ManifestRegion


@dataclass(frozen=True)
class Timing:
    """Median times of a region on a device, in the library and in TVM, in microseconds."""

    library_us: float
    tvm_us: float
    device: str
    measured_by: Measurer | None


@dataclass(frozen=True)
class RegionSummary:
    symbol: str
    backend: str
    layers: int
    operators: int
    macs: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    boundary_bytes: int
    """The bytes of its inputs and outputs in one call."""
    calls: int
    """How often the model calls it: equal regions with equal weights are one."""
    reason: str
    timing: Timing | None
    """The measured times, or None."""


@dataclass(frozen=True)
class Coverage:
    """The share of the model that backends run."""

    operators: int
    operators_offloaded: int
    macs: int
    macs_offloaded: int
    regions: int
    crossings: int
    """The number of tensors that enter or leave a region."""
    crossing_bytes: int
    library_us: float | None
    """The libraries' time for all regions; None unless one measurer measured each."""
    tvm_us: float | None
    """TVM's time for the same regions."""
    measured_by: Measurer | None
    """What measured both times; None if nothing did, or if that is unknown."""

    @property
    def operators_share(self) -> float:
        return self.operators_offloaded / (self.operators or 1)

    @property
    def macs_share(self) -> float:
        return self.macs_offloaded / (self.macs or 1)


@dataclass(frozen=True)
class PartitionReport(Report):
    model: str
    board: str
    backends: tuple[str, ...]
    coverage: Coverage
    regions: tuple[RegionSummary, ...]
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...]

    def headline(self) -> str:
        found = self.coverage
        names = ", ".join(self.backends) or "no backend"
        return (
            f"{self.model} on {self.board} with {names}: {found.operators_offloaded} of "
            f"{counted(found.operators, 'operator')} offloaded, {counted(found.regions, 'region')}"
        )


def summarise_regions(
    regions: Sequence[Region],
    calls: Mapping[str, int],
    decisions: Sequence[Decision],
    timings: Mapping[str, Timing],
) -> tuple[RegionSummary, ...]:
    reasons = {d.region: d.reason for d in decisions if d.region is not None}
    return tuple(
        RegionSummary(
            symbol=region.symbol,
            backend=region.backend,
            layers=len(region.steps),
            operators=len(region.operators),
            macs=region.macs,
            inputs=region.inputs,
            outputs=region.outputs,
            boundary_bytes=region.boundary_bytes,
            calls=calls.get(region.symbol, 1),
            reason=reasons[region.symbol],
            timing=timings.get(region.symbol),
        )
        for region in regions
    )


def coverage_of(decisions: Sequence[Decision], regions: Sequence[RegionSummary]) -> Coverage:
    offloaded = [decision for decision in decisions if decision.backend is not None]
    library_us, tvm_us, measured_by = _totals(regions)
    return Coverage(
        operators=len(decisions),
        operators_offloaded=len(offloaded),
        macs=sum(decision.macs for decision in decisions),
        macs_offloaded=sum(decision.macs for decision in offloaded),
        regions=len(regions),
        crossings=sum(r.calls * (len(r.inputs) + len(r.outputs)) for r in regions),
        crossing_bytes=sum(r.calls * r.boundary_bytes for r in regions),
        library_us=library_us,
        tvm_us=tvm_us,
        measured_by=measured_by,
    )


def _totals(
    regions: Sequence[RegionSummary],
) -> tuple[float | None, float | None, Measurer | None]:
    """Sum up the times, unless some region has none or another measurer."""
    known = [(region.calls, region.timing) for region in regions if region.timing is not None]
    measurers = {timing.measured_by for _, timing in known}
    if len(known) < len(regions) or len(measurers) != 1:
        return None, None, None
    library = sum(calls * timing.library_us for calls, timing in known)
    return library, sum(calls * timing.tvm_us for calls, timing in known), measurers.pop()


def offload_in_words(regions: Sequence[ManifestRegion]) -> str:
    """Return `ncnn 98.2 % of 702 M MACs in 3 regions` for each backend of a bundle; for one without
    any, how many operators it runs."""
    by_backend: dict[str, list[ManifestRegion]] = {}
    for region in regions:
        by_backend.setdefault(region.backend, []).append(region)
    parts = []
    for backend, own in by_backend.items():
        macs, whole = sum(region.macs for region in own), own[0].model_macs
        share = (
            f"{percent(macs / whole)} of {amount(whole)} MACs"
            if macs
            else counted(sum(len(region.operators) for region in own), "operator")
        )
        places = "".join(f" ({place})" for place in dict.fromkeys(r.place for r in own) if place)
        parts.append(f"{backend} {share} in {counted(len(own), 'region')}{places}")
    return "; ".join(parts)
