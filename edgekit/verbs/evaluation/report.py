"""The result of an evaluation: figures, and the limits that they are held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.base.errors import AccuracyError, UsageError
from edgekit.base.measurer import Measurer
from edgekit.base.options import option
from edgekit.base.report import Report
from edgekit.base.wording import counted, did_you_mean, number, percent
from edgekit.store.runs import AccuracyFigure

TaskName = Literal["classification", "detection", "keyword", "regression", "segmentation"]


@dataclass(frozen=True)
class Figure:
    """A kind of figure."""

    title: str
    share: bool = True
    """Whether it is a share of one, shown as a percentage."""
    better: Literal["higher", "lower"] = "higher"

    def in_words(self, value: float) -> str:
        return percent(value) if self.share else number(value)


@dataclass(frozen=True)
class Metric:
    """A figure of one evaluation."""

    name: str
    figure: Figure
    value: float
    """The figure of the outputs on the device."""
    model: float | None = None
    """The figure of the outputs of the model in its own runtime."""


@dataclass(frozen=True)
class Limit:
    """A bound that a figure must keep."""

    metric: str
    side: Literal["least", "most"]
    bound: float

    def keeps(self, value: float) -> bool:
        return value >= self.bound if self.side == "least" else value <= self.bound


@dataclass(frozen=True)
class EvaluationReport(Report):
    bundle: Path
    board: str
    device: str
    measured_by: Measurer
    """What the times come from; only hardware's are the board's own."""
    task: str
    data: Path
    samples: int
    resumed: int
    """The samples whose results an interrupted evaluation had left."""
    seconds: float
    """The median duration of an inference."""
    model: str | None
    """The model that ran beside the device, and its runtime."""
    metrics: tuple[Metric, ...]
    limits: tuple[Limit, ...] = ()
    kept_as: str | None = None
    """The id of the evaluation in the store; None if it was not kept."""

    def value(self, name: str) -> float:
        """Return the figure of that name; KeyError if there is none."""
        return {metric.name: metric.value for metric in self.metrics}[name]

    @property
    def accuracy(self) -> tuple[AccuracyFigure, ...]:
        """The figures of the outputs on the device, as the store keeps them."""
        return tuple(AccuracyFigure(m.name, m.value, m.figure.share) for m in self.metrics)

    @property
    def missed(self) -> tuple[Limit, ...]:
        return tuple(one for one in self.limits if not one.keeps(self.value(one.metric)))

    @property
    def passed(self) -> bool:
        return not self.missed

    def headline(self) -> str:
        first = self.metrics[0]
        return (
            f"{self.bundle.name} on {self.device}: {first.figure.title} "
            f"{first.figure.in_words(first.value)} of {counted(self.samples, 'sample')}"
        )


def limits_of(
    at_least: Mapping[str, float], at_most: Mapping[str, float], figures: Mapping[str, Figure]
) -> tuple[Limit, ...]:
    """Return limits; UsageError for one of a figure that the evaluation has not."""
    limits = [Limit(name, "least", bound) for name, bound in at_least.items()]
    limits += [Limit(name, "most", bound) for name, bound in at_most.items()]
    for limit in limits:
        if limit.metric not in figures:
            raise UsageError(
                f"this evaluation has no figure {limit.metric!r}",
                hint=did_you_mean(limit.metric, figures, f"it has {', '.join(figures)}"),
            )
    return tuple(limits)


def raise_if_missed(report: EvaluationReport) -> None:
    """Raise AccuracyError if a figure misses its limit."""
    if report.passed:
        return
    raise AccuracyError(
        f"{report.bundle.name} on {report.device} misses {missed_in_words(report)}",
        hint=f"{option('model')} shows what the model itself reaches on these samples",
    )


def missed_in_words(report: EvaluationReport) -> str:
    return ", ".join(
        f"{one.metric} {_side(one)} {number(one.bound)} with {number(report.value(one.metric))}"
        for one in report.missed
    )


def _side(limit: Limit) -> str:
    return "of at least" if limit.side == "least" else "of at most"
