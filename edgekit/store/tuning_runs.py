"""Searches for faster kernels as plain data, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from edgekit.base.decode import Most
from edgekit.base.measurer import Measurer, Unit
from edgekit.store.fields import (
    BoardName,
    Hash,
    Id,
    Int32,
    ModelName,
    Name,
    PlainObject,
    Time,
    Version,
    Words,
)

SessionState = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True)
class Workload:
    """One kernel on one kind of CPU."""

    key: Name
    """The kernel and its shapes, named by `schedules/kernels.py`: up to 200 characters."""
    target: Words
    """TVM's target as JSON: `Target.as_json`."""
    version: Int32
    """The version of the schedules. Records of other versions are not used."""
    words: Words
    """A description of the kernel for people."""
    module: Annotated[str, Most(64 << 20)] | None = None
    """MetaSchedule's JSON of the workload, if MetaSchedule can read it."""


@dataclass(frozen=True)
class TuningRecord:
    """One candidate, measured or failed."""

    id: Id
    """A unique id of 32 hexadecimal digits: a record written twice is stored once."""
    workload: Workload
    session: Id | None
    """None for a record from another tool's file."""
    device: Name
    measured_at: Time
    choice: PlainObject
    """A choice in the form of `compiler/schedules/choices.py`."""
    best_us: float | None
    """The median of one call in microseconds; None for a failure."""
    own_us: float | None
    """The time of the rule's own choice, measured together on the same device."""
    error: Version | None = None
    """The kind of failure: "compile", "run", "numbers", "timeout", "device"."""


@dataclass(frozen=True)
class TuningSession:
    """One run of `edgekit tune` or of `--quick-tune`."""

    id: Id
    model: ModelName
    model_sha256: Hash
    board: BoardName
    target: Words
    devices: tuple[Words, ...]
    host: Name
    process: BoardName
    """The searching process, as `moments.this_process` names it."""
    started_at: Time
    heard_at: Time
    """The last heartbeat. The later of two descriptions of a session counts."""
    ended_at: Annotated[str, Most(40)] | None
    state: SessionState
    """The state that the session wrote; a session that is gone is read as "interrupted"."""
    kernels: Int32
    """The number of kernels to tune."""
    wanted_trials: Int32 | None
    wanted_seconds: float | None
    measured_by: Measurer | None
    """None for a session from before this was recorded, if it does not tell otherwise."""
    unit: Unit
    """The unit of its numbers. Of instructions, `own_us` and `best_us` are thousands."""


@dataclass(frozen=True)
class TuningProgress:
    """One point of a session's curve."""

    session: Id
    at: Time
    trials: Int32
    failed: Int32
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
