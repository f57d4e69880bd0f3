"""Messages between `edgekit results` and the process that reads and writes MetaSchedule's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TraceToExport:
    module: int
    """The index among the modules."""
    trace: str
    seconds: float
    target: str


@dataclass(frozen=True)
class ToExport:
    folder: Path
    modules: tuple[str, ...]
    records: tuple[TraceToExport, ...]


@dataclass(frozen=True)
class Exported:
    written: int
    left_out: int


@dataclass(frozen=True)
class ToRead:
    """Lines of a workload file: the hash, and the module in MetaSchedule's own form."""

    workloads: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KernelOf:
    """A workload as edgekit's kernel."""

    key: str
    words: str
    module: str


Kernels = tuple[KernelOf | None, ...]
