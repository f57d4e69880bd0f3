"""What a benchmark reports: plain data, for those who measure, keep and show it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from edgekit.devices.sensors.state import BoardState


@dataclass(frozen=True)
class Memory:
    """Resident bytes of the process that ran the model; None where they could not be read."""

    process_before_model: int | None
    process_peak: int | None
    model_peak: int | None
    """What loading and running the model added to the process at its peak."""


@dataclass(frozen=True)
class Power:
    """What the board's own sensors said. Joules are of one inference."""

    source: str
    """What was measured: a rail, the sum of all rails, processor packages."""
    watts: float
    idle_watts: float | None
    """Of the same source, just before; None where it could not be had."""
    joules: float
    joules_above_idle: float | None


@dataclass(frozen=True)
class StepShare:
    name: str
    count: int
    share: float
    """Of the whole inference."""


@dataclass(frozen=True)
class CountedSummary:
    """What a microcontroller's own counter said."""

    unit: Literal["cycles", "instructions"]
    """Instructions are those of an emulated core: exact, and no measure of time."""
    median: int
    minimum: int
    maximum: int
    clock: int | None
    """In Hz, where the unit is cycles."""
    steps: tuple[StepShare, ...]
    """Layer by layer, in the order in which they run."""


@dataclass(frozen=True)
class BenchSummary:
    """What was measured, without the single measurements. Times are in seconds.

    Those of an emulated microcontroller are what it took to emulate it: go by `counted`.
    """

    bundle: Path
    board: str
    device: str
    median: float
    p90: float
    p99: float
    minimum: float
    mean: float
    stdev: float
    throughput: float
    """Inferences a second, one after another: 1 / mean."""
    runs: int
    warmup: int
    threads: int
    load: float | None
    """Seconds from the library's file to a model that can be run."""
    memory: Memory
    counted: CountedSummary | None
    """None where nothing but time was measured."""
    governor: str | None
    frequency_mhz: float | None
    load_average: float | None
    """Of the last minute, before the measurement began."""
    busy: bool
    """Whether others used the cores that the model was about to use."""
    preemptions: int | None
    """How often another process took the core away during the samples."""
    power: Power | None
    """None where the board can't tell, or nobody asked it."""
    temperature: float | None
    """Degrees Celsius, the hottest that any zone became."""
    throttled: bool | None
    state: BoardState | None
    """Power mode, clocks, fans, the GPU's memory; None where the board tells of none of them."""
    notes: tuple[str, ...]
    """What makes the numbers less than they seem."""


@dataclass(frozen=True)
class KernelShare:
    name: str
    calls: float
    """In one inference."""
    seconds: float
    """In one inference, all its calls together: the median of those that were profiled."""
    share: float
    """Of all kernels' time."""


@dataclass(frozen=True)
class Profile:
    """Where the time goes. Measured apart from the samples, which it would slow down."""

    inferences: int
    seconds: float
    """Of all kernels, in one inference."""
    kernels: tuple[KernelShare, ...]
    """Those that take the longest first."""


@dataclass(frozen=True)
class BenchReport(BenchSummary):
    samples: tuple[float, ...]
    """Seconds of one inference each, in order."""
    profile: Profile | None
    """None where none was asked for."""
    kept_as: str | None = None
    """The run's id in the store; None where it was not kept."""

    def summary(self) -> BenchSummary:
        return BenchSummary(**{f.name: getattr(self, f.name) for f in fields(BenchSummary)})
