"""What a search for faster kernels leaves behind, as every part of the store speaks of it. Knows
no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SessionState = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True)
class Workload:
    """One kernel on one kind of CPU."""

    key: str
    """The kernel and its shapes, as `schedules/kernels.py` names them: up to 200 characters."""
    target: str
    """What TVM compiles for, as JSON text: `Target.as_json`."""
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
    """32 hexadecimal digits of its own: written twice, it is there once."""
    workload: Workload
    session: str | None
    """None where it came from another tool's file."""
    device: str
    measured_at: str
    """`moments.now()`."""
    choice: Mapping[str, object]
    """`compiler/schedules/choices.py` reads and writes it."""
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
    process: str
    """`moments.this_process()` of whoever searches."""
    started_at: str
    heard_at: str
    """The last sign of life. Of two descriptions of a session the one with the later counts."""
    ended_at: str | None
    state: SessionState
    """As written by the session itself; as read, one that is gone is "interrupted"."""
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


@dataclass(frozen=True)
class BestRecord:
    """The best that is known of a kernel on one kind of CPU."""

    key: str
    words: str
    choice: Mapping[str, object]
    best_us: float
    own_us: float | None
    """Of the same moment as `best_us`, or the newest where that record has none."""
    device: str
    measured_at: str


@dataclass(frozen=True)
class KernelSearch:
    """What one session did for one kernel."""

    key: str
    words: str
    trials: int
    failed: int
    best_us: float | None
    own_us: float | None
    """Beside the best one."""
    choice: Mapping[str, object] | None
    """Of the best one."""
