"""The report of a benchmark as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.base.json_text import INTERNAL
from edgekit.base.measurer import Measurer, figure
from edgekit.base.report import Report, nanoseconds_of
from edgekit.base.wording import counted, measured
from edgekit.compiler.steps import StepKind
from edgekit.store.run_profile import RunProfile

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.roof import Limits
    from edgekit.devices.sensors.state import BoardState


@dataclass(frozen=True)
class Memory:
    """Resident bytes of the process that ran the model; None if unknown."""

    process_before_model: int | None
    process_peak: int | None
    model_peak: int | None
    """The peak of what loading and running the model added to the process."""


@dataclass(frozen=True)
class Power:
    """Readings of the board's own sensors. Joules are per inference."""

    source: str
    """The measured source: a rail, the sum of all rails, or processor packages."""
    watts: float
    idle_watts: float | None
    """The power of the same source just before; None if unknown."""
    joules: float
    joules_above_idle: float | None


@dataclass(frozen=True)
class StepShare:
    name: str
    count: int
    share: float
    """The share of the whole inference."""


@dataclass(frozen=True)
class CountedSummary:
    """The reading of a microcontroller's own counter."""

    unit: Literal["cycles", "instructions"]
    """Instructions are those of an emulated core: exact, and no measure of time."""
    median: int
    minimum: int
    maximum: int
    clock: int | None
    """The clock in Hz, if the unit is cycles."""
    steps: tuple[StepShare, ...]
    """The layers in the order in which they run."""


@dataclass(frozen=True)
class BenchSummary(Report):
    """A benchmark's figures without the single measurements. Times are in seconds.

    Times of an emulated microcontroller are the emulator's own: use `counted`, which has a unit.
    """

    bundle: Path
    board: str
    device: str
    measured_by: Measurer
    """What the times come from; only hardware's are the board's own."""
    median: float
    p90: float
    p99: float
    minimum: float
    mean: float
    stdev: float
    throughput: float
    """Inferences per second, one after another: 1 / mean."""
    runs: int
    warmup: int
    threads: int
    load: float | None
    """Seconds from opening the library's file to a model that can be run."""
    memory: Memory
    counted: CountedSummary | None
    """Counts of a microcontroller; None if only time was measured."""
    governor: str | None
    frequency_mhz: float | None
    load_average: float | None
    """The load average of the last minute before the measurement."""
    busy: bool
    """Whether other processes used the cores that the model was about to use."""
    preemptions: int | None
    """The number of times that another process took the core during the samples."""
    power: Power | None
    """The power; None if the board has no sensor or it was not read."""
    temperature: float | None
    """The highest temperature of any zone in degrees Celsius."""
    throttled: bool | None
    state: BoardState | None
    """Power mode, clocks, fans and the GPU's memory; None if the board reports none of them."""
    notes: tuple[str, ...]
    """Reasons to doubt the numbers."""
    sizes: str
    """The shapes of the inputs whose sizes vary, such as `ids=1x64`; empty if none does."""

    def headline(self) -> str:
        model = self.bundle.name
        if self.counted is not None and self.counted.clock is None:
            return f"{model} on {self.device}: {measured(self.counted.median, self.counted.unit)}"
        median, p90 = (figure(v, "seconds", self.measured_by) for v in (self.median, self.p90))
        times = f"median {median}, p90 {p90}"
        at = f" at {self.sizes}" if self.sizes else ""
        return f"{model} on {self.device}{at}: {times}, {counted(self.runs, 'run')}"


@dataclass(frozen=True)
class SizesReport(Report):
    """One benchmark for each of several sizes of the inputs."""

    sizes: tuple[BenchReport, ...]

    def headline(self) -> str:
        return "; ".join(report.headline() for report in self.sizes)


@dataclass(frozen=True)
class KernelShare:
    """One step of the library, or one function of TVM's virtual machine."""

    name: str
    """The name in the library."""
    layers: tuple[str, ...]
    """The model's own names of the layers that it computes; empty if unknown."""
    kind: StepKind
    owner: str
    """The backend whose library runs it; empty for edgekit's own kernels."""
    calls: float
    """Calls per inference."""
    seconds: float
    """Seconds per inference in all its calls: the median of the profiled ones."""
    share: float
    """The share of the median inference."""
    of_best: float | None = None
    """What it reaches of the most that steps of this run reached, in operations and in bytes a
    second; None if its work is unknown, or it is too short to be judged."""
    device_seconds: float | None = None
    """Seconds per inference by the clock of the GPU that ran its kernels; None without one."""


@dataclass(frozen=True)
class Profile:
    """Time by step. Measured apart from the samples, which it would slow down.

    All kernels, `copies` and `rest` add up to the median of the samples.
    """

    inferences: int
    seconds: float
    """Seconds per inference in all steps, the copies included."""
    kernels: tuple[KernelShare, ...]
    """The steps that compute layers, the slowest first."""
    copies: float
    """Seconds in steps that compute no layer: copies, checks of indices, calls of TVM's machine."""
    rest: float
    """The median less all steps: inputs, time between steps, and what other runs took more. Below
    zero if the profiled inferences took longer than the median."""
    limits: Limits | None = None
    """What the hardware can do at most, measured after the profile; None on emulated boards,
    microcontrollers and in engines."""


@dataclass(frozen=True)
class BenchReport(BenchSummary):
    samples: tuple[float, ...]
    """Seconds of each inference, in order."""
    profile: Profile | None
    """The profile, if requested."""
    trace: Path | None = None
    """The file with the timeline, if one was requested."""
    kept_as: str | None = None
    """The run's id in the store; None if it was not stored."""
    timed: RunProfile | None = field(default=None, metadata=INTERNAL)
    """The times of steps as they are stored, with a timeline."""

    @property
    def nanoseconds(self) -> Array:
        """The duration of each inference in whole nanoseconds, to be plotted."""
        return nanoseconds_of(self.samples)

    def summary(self) -> BenchSummary:
        return BenchSummary(**{f.name: getattr(self, f.name) for f in fields(BenchSummary)})
