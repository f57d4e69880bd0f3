"""What a device is to the rest of edgekit: something that runs and measures bundles."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from edgekit.events import SILENT, Events
from edgekit.metrics import HostState

if TYPE_CHECKING:
    from edgekit.arrays import Array
    from edgekit.bundle import Bundle


MOST_RUNS = 100_000
"""Of one measurement: every one is kept and reported."""


@dataclass(frozen=True)
class RunResult:
    outputs: dict[str, Array]
    seconds: float
    """Of the inference alone."""


@dataclass(frozen=True)
class BenchPlan:
    """Measure until both `runs` and `seconds` are reached; `threads` None leaves it to TVM."""

    warmup: int = 10
    runs: int = 30
    seconds: float = 3.0
    threads: int | None = None


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
class BenchSamples:
    """What a device measured, before anybody makes statistics of it."""

    nanoseconds: tuple[int, ...]
    """One inference each."""
    warmup: int
    threads: int
    memory: MemoryUse
    host_before: HostState
    host_after: HostState
    preemptions: int | None
    """How often another process took the core away during the samples."""


class Device(Protocol):
    """Every call raises DeviceError when the device or the model on it fails."""

    @property
    def name(self) -> str: ...

    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], *, events: Events = SILENT
    ) -> RunResult: ...

    def run_all(
        self, bundle: Bundle, samples: Iterable[Mapping[str, Array]], *, events: Events = SILENT
    ) -> Generator[RunResult, None, None]:
        """Run one sample after another with the model loaded once."""
        ...

    def bench(
        self,
        bundle: Bundle,
        inputs: Mapping[str, Array],
        plan: BenchPlan,
        *,
        events: Events = SILENT,
    ) -> BenchSamples: ...
