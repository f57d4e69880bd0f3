"""What a search for faster kernels leaves behind, as every part of the store speaks of it. Knows
no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """One kernel on one kind of CPU."""

    key: str
    """Names what is computed, on which shapes: `schedules/kernels.py`."""
    target: str
    """What TVM compiles for, as JSON text."""
    version: int
    """Of the schedules: what was measured for other ones is over."""
    words: str
    """What the kernel computes, for people."""
    module: str | None = None
    """MetaSchedule's own JSON of it, where MetaSchedule can read it."""


@dataclass(frozen=True)
class TuningRecord:
    """One candidate, measured or failed."""

    id: str
    workload: Workload
    session: str | None
    """None where it came from another tool's file."""
    device: str
    measured_at: str
    """ISO 8601, UTC."""
    choice: Mapping[str, object]
    """`schedules/choices.py` reads and writes it."""
    best_us: float | None
    """Microseconds of one call, the median. None where it failed."""
    own_us: float | None
    """What the rule's own choice took beside it, on the same device in the same moment."""
    error: str | None = None
    """The kind of failure: "compile", "run", "numbers", "timeout", "device"."""


@dataclass(frozen=True)
class TuningSession:
    """One run of `edgekit tune` or of `--quick-tune`."""

    id: str
    model: str
    model_sha256: str
    board: str
    target: str
    devices: tuple[str, ...]
    host: str
    started_at: str
    ended_at: str | None
    state: str
    """"running", "done", "interrupted" or "failed"."""
    kernels: int
    """How many it set out to tune."""
    wanted_trials: int | None
    wanted_seconds: float | None


@dataclass(frozen=True)
class TuningProgress:
    """Where a session stood at one moment: the points of its curve."""

    session: str
    at: str
    trials: int
    failed: int
    own_us: float
    """Of all kernels of the model as the rules would have them, one inference."""
    best_us: float
    """The same with the best that is known by then."""
