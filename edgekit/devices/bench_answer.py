"""The answer of an agent or a local worker to a request to measure. It is not trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from edgekit.base.decode import Count, Most, Range, decode
from edgekit.base.errors import DeviceError
from edgekit.base.metrics import HostState
from edgekit.devices.base import BenchSamples, MemoryUse
from edgekit.devices.kernel_times import KernelTime, KernelTimes, TimedInference

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class BenchAnswer:
    warmup: Count
    memory_before: Count | None
    memory_peak: Count | None
    host_before: HostState
    host_after: HostState
    preemptions: Count | None
    profiled: Annotated[int, Range(1, 1_000_000)] = 1
    kernels: Annotated[tuple[KernelTime, ...], Most(20_000, "kernels")] | None = None
    timeline: Annotated[tuple[TimedInference, ...], Most(100, "inferences")] = ()

    def __post_init__(self) -> None:
        known = len(self.kernels or ())
        if any(kernel >= known for one in self.timeline for kernel in one.kernels):
            raise ValueError("its timeline holds a kernel that is not in the list")

    def samples(
        self, nanoseconds: tuple[int, ...], threads: int, load_nanoseconds: int | None
    ) -> BenchSamples:
        return BenchSamples(
            nanoseconds=nanoseconds,
            warmup=self.warmup,
            threads=threads,
            memory=MemoryUse(self.memory_before, self.memory_peak),
            host_before=self.host_before,
            host_after=self.host_after,
            preemptions=self.preemptions,
            kernels=None
            if self.kernels is None
            else KernelTimes(self.profiled, self.kernels, self.timeline),
            load_nanoseconds=load_nanoseconds,
        )


def decoded_answer(kind: type[T], message: object, sender: str) -> T:
    """Decode an answer; DeviceError with the fault if it makes no sense."""
    try:
        return decode(kind, message, ignore_unknown=True)
    except ValueError as error:
        raise senseless(sender, error) from error


def senseless(sender: str, error: ValueError) -> DeviceError:
    return DeviceError(
        f"{sender} gave an answer that makes no sense",
        hint="something else may write to its output; check the device's disk and memory",
        details=(str(error),),
    )
