"""Benchmark runs and costs of regions as plain data, without a database."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class BuildFacts:
    """The build that was measured."""

    digest: str
    """The hash of the bundle's manifest, and so of every byte in it."""
    model: str
    model_sha256: str
    board: str
    target: str
    compiler: str
    offload: tuple[str, ...]
    edgekit_version: str
    tvm_version: str


@dataclass(frozen=True)
class Conditions:
    """The device's state during a run. None, never zero, for what the device can't tell."""

    threads: int
    governor: str | None = None
    frequency_mhz: float | None = None
    load_average: float | None = None
    busy: bool = False
    """Whether other processes used the model's cores before the run."""
    preemptions: int | None = None
    temperature_c: float | None = None
    throttled: bool | None = None


@dataclass(frozen=True)
class BenchRun:
    """One benchmark."""

    id: str
    measured_at: str
    """ISO 8601, UTC."""
    build: BuildFacts
    device: str
    host: str
    """The host that ran edgekit."""
    purpose: str
    """The command: "bench", "deploy", "matrix", "recommend"."""
    unit: str
    """The unit of all times: "seconds", or a microcontroller's "cycles" or "instructions". For
    those, p90 and p99 are the maximum, mean is the median; stdev and samples are meaningless."""
    median: float
    p90: float
    p99: float
    mean: float
    minimum: float
    stdev: float
    warmup: int
    conditions: Conditions
    model_peak: int | None = None
    process_peak: int | None = None
    joules: float | None = None
    """The energy of one inference."""
    notes: tuple[str, ...] = ()
    samples: tuple[int, ...] = ()
    """One number per inference, in order: nanoseconds, or instructions. Empty in lists of runs."""


@dataclass(frozen=True)
class RegionCost:
    """One region in a library and in TVM on one kind of board: medians of one inference."""

    region: str
    """The name of all that the region computes, weights and options included."""
    board: str
    backend: str
    version: str
    """The library's version."""
    library_us: float
    tvm_us: float
    agrees: bool
    """Whether both gave the same numbers."""
    device: str
    measured_at: str
    """The time, as `moments.now` writes it."""
