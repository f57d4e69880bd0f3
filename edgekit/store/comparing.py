"""Compare two runs: whether they may be compared, which is faster, and beyond what noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.base.errors import NotComparableError
from edgekit.base.measurer import beside, measurer_in_words
from edgekit.base.report import Report
from edgekit.base.wording import celsius, multiple, percent
from edgekit.store.runs import BenchRun

Verdict = Literal["faster", "slower", "same", "not comparable"]

_Z = 1.96
"""95 % of a normal distribution."""


@dataclass(frozen=True)
class Comparison(Report):
    """Two runs compared. A ratio above 1 means that `after` is slower."""

    before: BenchRun
    after: BenchRun
    ratio: float
    """The median of `after` divided by that of `before`."""
    low: float
    """The lower end of the ratio's 95 % interval, from order statistics of the samples."""
    high: float
    obstacles: tuple[str, ...]
    """The reasons why they can't be compared; empty if they can."""
    remarks: tuple[str, ...]
    """Other differences, such as the one under test."""

    @property
    def verdict(self) -> Verdict:
        """Judge the ratio by its interval."""
        if self.obstacles:
            return "not comparable"
        if self.low > 1.0:
            return "slower"
        return "faster" if self.high < 1.0 else "same"

    def regressed_by_more_than(self, share: float) -> bool:
        """Tell whether `after` is slower by more than a share, beyond noise."""
        return self.verdict == "slower" and self.ratio > 1.0 + share

    def spread_in_words(self) -> str:
        """Say the ratio of the medians and its interval."""
        spread = multiple(self.ratio, self.low, self.high)
        return f"median after / median before: {spread} in 95 of 100 cases"

    def verdict_in_words(self) -> str:
        """Say the difference of the medians."""
        words = {
            "slower": f"{percent(self.ratio - 1)} slower",
            "faster": f"{percent(1 - self.ratio)} faster",
            "same": "no difference beyond noise",
            "not comparable": "not comparable",
        }
        return words[self.verdict]

    def headline(self) -> str:
        device = beside(self.after.device, self.after.measured_by)
        return f"{self.after.build.model} on {device}: {self.verdict_in_words()}"

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "verdict": self.verdict}


def compare_runs(before: BenchRun, after: BenchRun) -> Comparison:
    """Compare two runs; raise NotComparableError for two units or two kinds of measurer."""
    _check_kinds(before, after)
    low_before, high_before = median_interval(before)
    low_after, high_after = median_interval(after)
    return Comparison(
        before,
        after,
        _ratio(after.median, before.median),
        _ratio(low_after, high_before),
        _ratio(high_after, low_before),
        obstacles(before, after),
        remarks(before, after),
    )


def _check_kinds(before: BenchRun, after: BenchRun) -> None:
    if before.unit != after.unit:
        raise NotComparableError(
            f"one run is in {before.unit} and the other in {after.unit}, which have no ratio",
            hint="compare runs in one unit: `edgekit results list` shows the units",
        )
    if before.measured_by != after.measured_by:
        one, other = (_measurer(run) for run in (before, after))
        raise NotComparableError(
            f"{one} measured one run and {other} the other: their ratio says nothing",
            hint="compare runs of one measurer: `edgekit results list` shows the measurers",
        )


def _measurer(run: BenchRun) -> str:
    named = measurer_in_words(run.measured_by).partition(":")[0]
    return named if run.measured_by is not None else "something unknown"


def median_interval(run: BenchRun) -> tuple[float, float]:
    """Return the two samples between which the true median lies in 95 % of cases.

    Their ranks follow from the binomial distribution alone.
    """
    count = len(run.samples)
    if count < 6:  # too few for this confidence
        return (run.minimum, max(run.p99, run.median))
    ordered = sorted(run.samples)
    half = _Z * math.sqrt(count) / 2
    below = max(math.floor(count / 2 - half), 0)
    above = min(math.ceil(count / 2 + half), count - 1)
    scale = 1e9 if run.unit == "seconds" else 1.0
    return ordered[below] / scale, ordered[above] / scale


def obstacles(before: BenchRun, after: BenchRun) -> tuple[str, ...]:
    """List the reasons why two runs can't be compared."""
    found = []
    one, other = before.conditions, after.conditions
    for what, left, right in (
        ("models", before.build.model, after.build.model),
        ("boards", before.build.board, after.build.board),
        ("sizes of the inputs", before.sizes or "the largest", after.sizes or "the largest"),
        ("numbers of threads", one.threads, other.threads),
        ("CPU governors", one.governor, other.governor),
    ):
        if left != right:
            found.append(f"different {what}: {_or_unknown(left)} and {_or_unknown(right)}")
    for name, conditions in (("first", one), ("second", other)):
        if conditions.throttled:
            found.append(f"the {name} run was throttled")
        if conditions.busy:
            found.append(f"the device of the {name} run was busy before it began")
    return tuple(found)


def remarks(before: BenchRun, after: BenchRun) -> tuple[str, ...]:
    """List differences that are no obstacle, and what both are if not the board's own times."""
    found = []
    for what, left, right in (
        ("model files", before.build.model_sha256[:12], after.build.model_sha256[:12]),
        ("devices", before.device, after.device),
        ("offloads", _words(before.build.offload), _words(after.build.offload)),
        ("compilers", before.build.compiler, after.build.compiler),
        ("targets", before.build.target, after.build.target),
        ("versions of edgekit", before.build.edgekit_version, after.build.edgekit_version),
        ("versions of TVM", before.build.tvm_version, after.build.tvm_version),
    ):
        if left != right:
            found.append(f"different {what}: {left} and {right}")
    if after.measured_by != "hardware":
        found.append(f"measured by {measurer_in_words(after.measured_by)}")
    cold, hot = before.conditions.temperature_c, after.conditions.temperature_c
    if cold is not None and hot is not None and abs(cold - hot) > 10:
        found.append(f"temperatures of {celsius(cold)} and {celsius(hot)}")
    return tuple(found)


def best_of(runs: Sequence[BenchRun]) -> BenchRun:
    """Return the run with the lowest median."""
    return min(runs, key=lambda run: run.median)


def _ratio(over: float, under: float) -> float:
    return over / under if under else math.inf


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)


def _words(offload: tuple[str, ...]) -> str:
    return ", ".join(offload) or "none"
