"""What a device is to the rest of edgekit: something that is opened for a bundle, and then runs and
measures it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.metrics import HostState
from edgekit.devices.kernel_times import KernelTimes

if TYPE_CHECKING:
    from edgekit.base.arrays import Array
    from edgekit.base.errors import EdgekitError
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.linux.versions import Recorded
    from edgekit.devices.sensors.readings import Observed


MOST_RUNS = 100_000
"""Of one measurement: every one is kept and reported."""


@dataclass(frozen=True)
class RunResult:
    outputs: dict[str, Array]
    seconds: float
    """Of the inference alone. On an emulated microcontroller: what it took to emulate it."""


@dataclass(frozen=True)
class BenchPlan:
    """Measure until both `runs` and `seconds` are reached; `threads` None leaves it to TVM."""

    warmup: int = 10
    runs: int = 30
    seconds: float = 3.0
    threads: int | None = None
    profiled: int = 0
    """Inferences more, afterwards, that are timed kernel by kernel."""
    sensors: bool = False
    """Listen to the board's sensors meanwhile, and to what it takes idle before."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of the process that ran the model; None where they could not be read."""

    before_model: int | None
    """Resident before the model's library was loaded: Python and the runtime."""
    peak: int | None
    """Most that was resident from then on, the above included."""

    @property
    def of_model(self) -> int | None:
        """What loading and running the model added: weights, activations, inputs, outputs."""
        if self.peak is None or self.before_model is None:
            return None
        return max(self.peak - self.before_model, 0)


@dataclass(frozen=True)
class StepCount:
    """One layer, or as many as are computed together."""

    name: str
    count: int


@dataclass(frozen=True)
class Counted:
    """What a microcontroller's own counter says, apart from all time."""

    unit: Literal["cycles", "instructions"]
    """Cycles of a real core; of an emulated one instructions, which say nothing about time."""
    counts: tuple[int, ...]
    """One inference each."""
    steps: tuple[StepCount, ...]
    """Of one inference, in order."""
    clock: int | None
    """In Hz, where the unit is cycles."""


@dataclass(frozen=True)
class BenchSamples:
    """What a device measured, before anybody makes statistics of it."""

    nanoseconds: tuple[int, ...]
    """One inference each. On an emulated microcontroller: what it took to emulate it."""
    warmup: int
    threads: int
    memory: MemoryUse
    host_before: HostState
    host_after: HostState
    preemptions: int | None
    """How often another process took the core away during the samples."""
    kernels: KernelTimes | None = None
    """None where no profile was asked for."""
    load_nanoseconds: int | None = None
    """What it took to load the model, to where it can be run."""
    counted: Counted | None = None
    """On a microcontroller."""
    observed: Observed | None = None
    """What the board's sensors said; None where nobody listened."""


@dataclass(frozen=True)
class Installed:
    """What a bundle takes up on a device, in bytes of files."""

    agent: int
    """Our program and the licences."""
    runtime: int
    """TVM's libraries."""
    model: int
    sent: int
    """Of all that, what was not there yet and was sent when the device was opened."""

    @property
    def total(self) -> int:
        return self.agent + self.runtime + self.model


class Device(Protocol):
    @property
    def name(self) -> str: ...

    def opened(self, bundle: Bundle, *, events: Events = SILENT) -> AbstractContextManager[Session]:
        """The device with the bundle on it, ours for the time of the block; DeviceError where that
        does not come about."""
        ...


class Session(Device, Protocol):
    """A bundle on a device, to be run and measured as often as one likes.

    Opened once more it gives itself: whatever takes a device takes an open one. Every call raises
    DeviceError when the device or the model on it fails.
    """

    @property
    def installed(self) -> Installed | None:
        """None where nothing has to be installed."""
        ...

    def run(self, inputs: Mapping[str, Array]) -> RunResult: ...

    def run_all(self, samples: Iterable[Mapping[str, Array]]) -> Generator[RunResult, None, None]:
        """Run one sample after another with the model loaded once."""
        ...

    def bench(self, inputs: Mapping[str, Array], plan: BenchPlan) -> BenchSamples: ...

    def make_current(self, *, verified: bool, median: float | None, keep: int) -> Recorded | None:
        """Let the bundle be the device's current version of its model, and forget all versions but
        the latest `keep`; None where a device has no versions."""
        ...

    def log_failure(self, event: str, error: EdgekitError) -> None:
        """Write down on the device what went wrong, where a device has a log."""
        ...


def check_same(opened: Bundle, asked: Bundle) -> None:
    """A session is for one bundle."""
    if opened.digest != asked.digest:
        raise UsageError(
            f"the device was opened for {opened.path}, and is asked to take {asked.path}",
            hint="open it for each bundle",
        )
