"""The result of MLPerf's tests on a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import NotComparableError
from edgekit.base.measurer import Measurer, beside
from edgekit.base.report import Report
from edgekit.base.wording import duration, number
from edgekit.verbs.evaluation.report import Metric
from edgekit.verbs.mlperf.messages import Scenario


@dataclass(frozen=True)
class Performance:
    """The result of a performance test, as LoadGen's log tells it."""

    valid: bool
    """Whether LoadGen calls the result valid under the test's settings."""
    reason: str | None
    """LoadGen's words for an invalid result."""
    latency: float | None
    """The latency in seconds that MLPerf judges by: the ninetieth percentile of SingleStream."""
    throughput: float | None
    """The samples per second of Offline."""
    queries: int
    seconds: float
    """The median duration of an inference on the device alone."""
    errors: tuple[str, ...]
    """The errors in LoadGen's log."""


@dataclass(frozen=True)
class MlperfReport(Report):
    bundle: Path
    board: str
    device: str
    measured_by: Measurer
    """What the times come from; only hardware's are the board's own."""
    scenario: Scenario
    benchmark: str
    loadgen: str
    """LoadGen's version."""
    samples: int
    """The samples of the data set."""
    performance: Performance | None
    accuracy: tuple[Metric, ...]
    """The figures of the accuracy test, the most important first."""
    obstacles: tuple[str, ...]
    """Why the logs are no submission's; empty if edgekit knows no reason."""
    folder: Path
    files: tuple[Path, ...]

    def headline(self) -> str:
        figures = [f"{one.name} {one.figure.in_words(one.value)}" for one in self.accuracy[:1]]
        if self.performance is not None:
            figures.insert(0, self.speed_in_words(self.performance))
        return f"{self.bundle.name} on {self.device}, {self.scenario}: {', '.join(figures)}"

    def speed_in_words(self, performance: Performance) -> str:
        """Say the figure that MLPerf judges by, with the word for its measurer."""
        if performance.throughput is not None:
            said = f"{number(performance.throughput)} samples/s"
        elif performance.latency is not None:
            said = duration(performance.latency)
        else:
            said = "no result"
        return beside(said, self.measured_by)


def raise_if_invalid(report: MlperfReport) -> None:
    """Raise NotComparableError if LoadGen calls the result invalid."""
    result = report.performance
    if result is not None and not result.valid:
        raise NotComparableError(
            f"LoadGen calls the result of {report.bundle.name} on {report.device} invalid"
            + (f": {result.reason}" if result.reason else ""),
            hint="give it more time or queries, as its log says",
            details=result.errors,
        )
