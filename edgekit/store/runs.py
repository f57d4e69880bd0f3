"""Benchmark runs, evaluations and costs of regions as plain data, without a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from edgekit.base.decode import Most
from edgekit.base.measurer import Measurer, figure
from edgekit.base.report import Report
from edgekit.base.wording import number, percent
from edgekit.store.fields import (
    BoardName,
    Hash,
    Id,
    Int32,
    ModelName,
    Name,
    RunTime,
    Time,
    Version,
    Word,
    Words,
)
from edgekit.store.run_profile import RunProfile

if TYPE_CHECKING:
    from edgekit.base.arrays import Array

MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class BuildFacts:
    """The build that was measured."""

    digest: Hash
    """The hash of the bundle's manifest, and so of every byte in it."""
    model: ModelName
    model_sha256: Hash
    board: BoardName
    target: Words
    compiler: Words
    offload: tuple[Words, ...]
    edgekit_version: Version
    tvm_version: Version


@dataclass(frozen=True)
class Conditions:
    """The device's state during a run. None, never zero, for what the device can't tell."""

    threads: Int32
    governor: Words | None = None
    frequency_mhz: float | None = None
    load_average: float | None = None
    busy: bool = False
    """Whether other processes used the model's cores before the run."""
    preemptions: Int32 | None = None
    temperature_c: float | None = None
    throttled: bool | None = None


@dataclass(frozen=True)
class BenchRun(Report):
    """One benchmark."""

    id: Id
    measured_at: RunTime
    build: BuildFacts
    device: Name
    host: Name
    """The host that ran edgekit."""
    purpose: Word
    """The command: "bench", "deploy", "matrix", "recommend"."""
    unit: Word
    """The unit of all times: "seconds", or a microcontroller's "cycles" or "instructions". For
    those, p90 and p99 are the maximum, mean is the median; stdev and samples are meaningless."""
    measured_by: Measurer | None
    """None for a run from before this was recorded, if it does not tell otherwise."""
    median: float
    p90: float
    p99: float
    mean: float
    minimum: float
    stdev: float
    warmup: Int32
    conditions: Conditions
    model_peak: int | None = None
    process_peak: int | None = None
    joules: float | None = None
    """The energy of one inference."""
    sizes: Words = ""
    """The shapes of inputs whose sizes vary, such as `ids=1x64`; empty at their largest sizes."""
    notes: tuple[Words, ...] = ()
    samples: Annotated[tuple[int, ...], Most(MOST_SAMPLES, "numbers")] = ()
    """One number per inference, in order: nanoseconds, or instructions. Empty in lists of runs."""
    profile: RunProfile | None = None
    """The time of each step, if it was measured; None in lists of runs."""

    def headline(self) -> str:
        when = self.measured_at[:16].replace("T", " ")
        median = figure(self.median, self.unit, self.measured_by)
        return f"{self.build.model} on {self.device}, {when}: median {median}"

    @property
    def nanoseconds(self) -> Array:
        """The samples as an array, to be plotted; empty in lists of runs."""
        import numpy as np

        return np.array(self.samples, np.int64)


@dataclass(frozen=True)
class AccuracyFigure:
    """A figure of accuracy, such as the share of right samples."""

    name: Word
    value: float
    share: bool
    """Whether it is a share of one."""

    def in_words(self) -> str:
        return f"{self.name} {percent(self.value) if self.share else number(self.value)}"


@dataclass(frozen=True)
class Evaluation(Report):
    """The accuracy of one build on a data set."""

    id: Id
    measured_at: RunTime
    build: BuildFacts
    device: Name
    host: Name
    """The host that ran edgekit."""
    purpose: Word
    """The command: "evaluate", "matrix"."""
    task: Word
    data: Words
    """The name of the data set's folder."""
    samples: Int32
    measured_by: Measurer | None
    seconds: float
    """The median duration of an inference."""
    figures: tuple[AccuracyFigure, ...]
    """The figures, the most important first."""

    def headline(self) -> str:
        when = self.measured_at[:16].replace("T", " ")
        return f"{self.build.model} on {self.device}, {when}: {accuracy_in_words(self.figures)}"


def accuracy_in_words(figures: tuple[AccuracyFigure, ...]) -> str:
    """Say the most important figure; empty if there is none."""
    return figures[0].in_words() if figures else ""


@dataclass(frozen=True)
class RegionCost:
    """One region in a library and in TVM on one kind of board: medians of one inference."""

    region: Name
    """The name of all that the region computes, weights and options included."""
    board: BoardName
    backend: BoardName
    version: BoardName
    """The library's version."""
    library_us: float
    tvm_us: float
    agrees: bool
    """Whether both gave the same numbers."""
    device: Name
    measured_at: Time
    measured_by: Measurer | None
