"""What a benchmark run was, as every part of the store speaks of it. Knows no database."""

from __future__ import annotations

from dataclasses import dataclass

MOST_SAMPLES = 1_000_000


@dataclass(frozen=True)
class BuildFacts:
    """What was measured."""

    digest: str
    """Of the bundle's manifest, and so of every byte in it."""
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
    """What it was like meanwhile. None where the device could not tell, never zero."""

    threads: int
    governor: str | None = None
    frequency_mhz: float | None = None
    load_average: float | None = None
    busy: bool = False
    """Whether others used the cores that the model was about to use."""
    preemptions: int | None = None
    temperature_c: float | None = None
    throttled: bool | None = None


@dataclass(frozen=True)
class BenchRun:
    id: str
    measured_at: str
    """ISO 8601, UTC."""
    build: BuildFacts
    device: str
    host: str
    """The machine that ran edgekit."""
    purpose: str
    """What was measured for: "bench", "deploy", "matrix", "recommend"."""
    unit: str
    """"seconds", or the "cycles" or "instructions" that a microcontroller counts: of
    those p90 and p99 are the largest, mean is the median, and stdev and samples say nothing."""
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
    """Of one inference."""
    notes: tuple[str, ...] = ()
    samples: tuple[int, ...] = ()
    """One inference each, in order: nanoseconds, or instructions. Lists of runs leave them out."""
