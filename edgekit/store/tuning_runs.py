"""Searches for faster kernels as plain data, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SessionState = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True)
class Workload:
    """One kernel on one kind of CPU."""

    key: str
    """The kernel and its shapes, named by `schedules/kernels.py`: up to 200 characters."""
    target: str
    """TVM's target as JSON: `Target.as_json`."""
    version: int
    """The version of the schedules. Records of other versions are not used."""
    words: str
    """A description of the kernel for people."""
    module: str | None = None
    """MetaSchedule's JSON of the workload, if MetaSchedule can read it."""


@dataclass(frozen=True)
class TuningRecord:
    """One candidate, measured or failed."""

    id: str
    """A unique id of 32 hexadecimal digits: a record written twice is stored once."""
    workload: Workload
    session: str | None
    """None for a record from another tool's file."""
    device: str
    measured_at: str
    """The time, as `moments.now` writes it."""
    choice: Mapping[str, object]
    """A choice in the form of `compiler/schedules/choices.py`."""
    best_us: float | None
    """The median of one call in microseconds; None for a failure."""
    own_us: float | None
    """The time of the rule's own choice, measured together on the same device."""
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
    """The searching process, as `moments.this_process` names it."""
    started_at: str
    heard_at: str
    """The last heartbeat. The later of two descriptions of a session counts."""
    ended_at: str | None
    state: SessionState
    """The state that the session wrote; a session that is gone is read as "interrupted"."""
    kernels: int
    """The number of kernels to tune."""
    wanted_trials: int | None
    wanted_seconds: float | None


@dataclass(frozen=True)
class TuningProgress:
    """One point of a session's curve."""

    session: str
    at: str
    trials: int
    failed: int
    own_us: float
    """The time of one inference with the rules' own choices for all kernels."""
    best_us: float
    """The time of one inference with the best choices so far."""


@dataclass(frozen=True)
class BestRecord:
    """The best record of a kernel on one kind of CPU."""

    key: str
    words: str
    choice: Mapping[str, object]
    best_us: float
    own_us: float | None
    """The rule's own time, measured with `best_us`; the newest one if that record has none."""
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
    """The rule's own time, measured with the best candidate."""
    choice: Mapping[str, object] | None
    """The best candidate's choice."""
