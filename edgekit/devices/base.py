"""Results of devices, and sessions: a device is opened for a bundle, then runs and measures it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer
from edgekit.base.metrics import HostState
from edgekit.devices.kernel_times import KernelTimes

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.errors import EdgekitError
    from edgekit.base.roof import Limits
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.sensors.readings import Observed


S = TypeVar("S", bound="SessionBase")

MOST_RUNS = 100_000
"""Limit of one measurement, which keeps and reports every run."""


class DeviceBusy(DeviceError):
    """The error for a device, a serial line or a labgrid place that is in use."""


class DeviceSilent(DeviceError):
    """The error for a device that does not answer at all: it is off, or hangs."""


@dataclass(frozen=True)
class RunResult:
    outputs: dict[str, Array]
    seconds: float
    """Duration of the inference alone; on an emulated microcontroller, of its emulation."""


@dataclass(frozen=True)
class BenchPlan:
    """Measure until both `runs` and `seconds` are reached; `threads` None leaves it to TVM."""

    warmup: int = 10
    runs: int = 30
    seconds: float = 3.0
    threads: int | None = None
    profiled: int = 0
    """Further inferences afterwards that are timed kernel by kernel."""
    sensors: bool = False
    """Whether to record the board's sensors during the measurement and while idle before it."""
    traced: int = 0
    """The first profiled inferences, of which the device gives a timeline."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory of the process that ran the model, in bytes; None where it could not be read."""

    before_model: int | None
    """Resident memory before the model's library was loaded: Python and the runtime."""
    peak: int | None
    """Peak resident memory afterwards, the above included."""

    @property
    def of_model(self) -> int | None:
        """Memory added by loading and running the model: weights, activations, inputs, outputs."""
        if self.peak is None or self.before_model is None:
            return None
        return max(self.peak - self.before_model, 0)


@dataclass(frozen=True)
class StepCount:
    """The count of one layer, or of several that are computed together."""

    name: str
    count: int


@dataclass(frozen=True)
class Counted:
    """Counts of a microcontroller's own counter, independent of time."""

    unit: Literal["cycles", "instructions"]
    """Cycles on a real core; on an emulated core instructions, which say nothing about time."""
    counts: tuple[int, ...]
    """One count for each inference."""
    steps: tuple[StepCount, ...]
    """Counts of the layers of one inference, in order."""
    clock: int | None
    """Clock in Hz, if the unit is cycles."""


@dataclass(frozen=True)
class BenchSamples:
    """Raw measurements of a device."""

    nanoseconds: tuple[int, ...]
    """Duration of each inference; on an emulated microcontroller, of its emulation."""
    warmup: int
    threads: int
    memory: MemoryUse
    host_before: HostState
    host_after: HostState
    preemptions: int | None
    """Number of times that another process took the core away during the samples."""
    kernels: KernelTimes | None = None
    """Profile by kernel; None if none was requested."""
    load_nanoseconds: int | None = None
    """Time to load the model until it can run."""
    counted: Counted | None = None
    """Counts of a microcontroller; None on other devices."""
    observed: Observed | None = None
    """Readings of the board's sensors; None if they were not recorded."""
    told: tuple[str, ...] = ()
    """What the model's regions said of how they run, such as on which GPU."""
    warned: tuple[str, ...] = ()
    """What those said that do not run where the model was built for."""


@dataclass(frozen=True)
class Installed:
    """Bytes of files that a bundle takes up on a device."""

    agent: int
    """The agent and the licences."""
    runtime: int
    """TVM's libraries."""
    model: int
    sent: int
    """Bytes that were missing on the device and were sent when it was opened."""

    @property
    def total(self) -> int:
        return self.agent + self.runtime + self.model


@dataclass(frozen=True)
class Recorded:
    """The record of a version that became the current one."""

    before: str | None
    """Digest of the version that was current until now."""
    removed: tuple[str, ...]
    """Digests of removed older versions."""


class RunsBundles(Protocol):
    """A device, or a session, which is opened already and returns itself."""

    @property
    def name(self) -> str: ...

    def opened(
        self, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> AbstractContextManager[Session]: ...


class Session(RunsBundles, Protocol):
    """A bundle on a device, to be run and measured any number of times.

    Every call raises DeviceError when the device or the model on it fails.
    """

    @property
    def measured_by(self) -> Measurer:
        """What its times come from."""
        ...

    @property
    def installed(self) -> Installed | None:
        """Size of the installed files; None if the device needs none."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> RunResult: ...

    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        """Run one sample after another with the model loaded once."""
        ...

    def run_one_by_one(
        self, samples: Iterable[Mapping[str, Array]]
    ) -> Generator[RunResult, None, None]:
        """Run each sample when it comes: the next is asked for after the result of this one."""
        ...

    def bench(self, inputs: Mapping[str, Array], plan: BenchPlan) -> BenchSamples: ...

    def limits(self, threads: int) -> Limits | None:
        """Measure what the hardware can do at most; None where nothing measures it.
        MissingToolError without a compiler for the device."""
        ...

    def make_current(self, *, verified: bool, median: float | None, keep: int) -> Recorded | None:
        """Make the bundle the device's current version of its model and delete all but the latest
        `keep` versions; None if the device keeps no versions."""
        ...

    def log_failure(self, event: str, error: EdgekitError) -> None:
        """Record a failure in the device's log, if it has one."""
        ...


class SessionBase(ABC):
    """The part of a session that is the same on every device."""

    bundle: Bundle

    @contextmanager
    def opened(
        self: S, bundle: Bundle, *, purpose: str = "run", events: Events = SILENT
    ) -> Iterator[S]:
        """Yield the session itself; refuse a bundle other than its own."""
        if self.bundle.digest != bundle.digest:
            raise UsageError(
                f"the device was opened for {self.bundle.path}, not for {bundle.path}",
                hint="open it for each bundle",
            )
        yield self

    def run(self, inputs: Mapping[str, Array]) -> RunResult:
        (result,) = self.run_all([inputs])
        return result

    def limits(self, threads: int) -> Limits | None:
        return None

    @abstractmethod
    def run_all(
        self, samples: Iterable[Mapping[str, Array]]
    ) -> Generator[RunResult, None, None]: ...

    def run_one_by_one(
        self, samples: Iterable[Mapping[str, Array]]
    ) -> Generator[RunResult, None, None]:
        yield from self.run_all(samples)
