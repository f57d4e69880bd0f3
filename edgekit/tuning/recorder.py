"""Writes every candidate of a search to the store, and reads what earlier searches measured."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer, Unit
from edgekit.base.wording import counted
from edgekit.store.address import default_url, is_off
from edgekit.store.lookup import deliver_waiting
from edgekit.store.moments import now, this_process
from edgekit.store.tuning_log import TuningLog, tuning_log
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession, Workload

if TYPE_CHECKING:
    from edgekit.building.request import BuildRequest


@dataclass(frozen=True)
class Limits:
    """How long a search goes on."""

    trials: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Finding:
    """The result of one candidate, or of a subject's own way."""

    workload: Workload
    device: str
    choice: Mapping[str, object]
    best_us: float | None
    own_us: float | None
    error: str | None = None


@dataclass(frozen=True)
class Progress:
    """What a search has found so far."""

    trials: int
    failed: int
    own_us: float
    """The time of one inference by the rules."""
    best_us: float


@dataclass(frozen=True)
class Searched:
    """What a search is about, and how it measures."""

    target: str
    subjects: int
    """The number of kernels or steps."""
    measured_by: Measurer
    unit: Unit


class Recorder:
    """The record of one search. Any thread may use it."""

    def __init__(self, log: TuningLog) -> None:
        self.session = log.session.id
        self.remembers = log.remembers
        """Whether a store keeps the results."""
        self.records: list[TuningRecord] = []
        """All results of this search."""
        self.trials = 0
        self._log = log
        self._lock = threading.Lock()

    def add(self, findings: Iterable[Finding], progress: Progress) -> None:
        """Save results. They are on the disk when this returns."""
        moment = now()
        records = [
            TuningRecord(
                id=uuid.uuid4().hex, session=self.session, measured_at=moment, **vars(finding)
            )
            for finding in findings
        ]
        with self._lock:
            self.records += records
            self.trials = progress.trials
            self._log.add(records, TuningProgress(self.session, moment, **vars(progress)))


@contextmanager
def recording(
    request: BuildRequest,
    devices: Sequence[str],
    about: Searched,
    limits: Limits,
    events: Events = SILENT,
) -> Iterator[Recorder]:
    """Record a search."""
    moment = now()
    session = TuningSession(
        id=uuid.uuid4().hex,
        model=request.source.name,
        model_sha256=request.source.sha256,
        board=request.board.name,
        target=about.target,
        devices=tuple(devices),
        host=socket.gethostname(),
        process=this_process(),
        started_at=moment,
        heard_at=moment,
        ended_at=None,
        state="running",
        kernels=about.subjects,
        wanted_trials=limits.trials,
        wanted_seconds=limits.seconds,
        measured_by=about.measured_by,
        unit=about.unit,
    )
    with tuning_log(session, request.store, events) as log:
        recorder = Recorder(log)
        try:
            yield recorder
        except KeyboardInterrupt:
            if recorder.trials:
                trials = f"{counted(recorder.trials, 'trial')} of this search"
                events.warn(
                    f"kept: {trials}; the same command goes on after them"
                    if log.remembers
                    else f"lost, because no store is in use: {trials}"
                )
            raise


def earlier_records(
    keys: Iterable[str], target: str, version: int, store_url: str | None
) -> dict[str, tuple[TuningRecord, ...]]:
    """Return what earlier searches measured of these subjects on this target."""
    url = store_url or default_url()
    if is_off(url):
        return {}
    from edgekit.store.database import close_store, open_store
    from edgekit.store.tuning import records_of

    deliver_waiting(url)
    store = open_store(url)
    try:
        return {key: records_of(store, key, target, version) for key in keys}
    finally:
        close_store(store)
