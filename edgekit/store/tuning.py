"""Searches for faster kernels, read from the store. `tuning_log.py` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import RowMapping, Select, select, update

from edgekit.base.json_reader import read_json
from edgekit.store.database import Store, read, write
from edgekit.store.moments import has_surely_ended, now, seconds_since
from edgekit.store.queries import choice_in, hash_of
from edgekit.store.rows import Named, only_one, select_named
from edgekit.store.tables import tuning_progress, tuning_records, tuning_sessions, workloads
from edgekit.store.tuning_runs import (
    KernelSearch,
    TuningProgress,
    TuningRecord,
    TuningSession,
    Workload,
)

SILENT_SECONDS = 180.0
"""The silence after which a session counts as gone. Its heartbeat comes every 30 seconds."""
_NAMED = Named("tuning session", listed_by="edgekit results tuning", made_by="edgekit tune MODEL")


def record_heartbeat(store: Store, session: str) -> None:
    """Record that a session still runs."""
    change = (
        update(tuning_sessions)
        .where(tuning_sessions.c.id == session, tuning_sessions.c.state == "running")
        .values(heard_at=now())
    )
    write(store, lambda connection: connection.execute(change))


def sessions(store: Store, limit: int = 50) -> tuple[TuningSession, ...]:
    """List sessions, latest first. One whose process is gone is "interrupted"."""
    query = select(tuning_sessions).order_by(tuning_sessions.c.started_at.desc()).limit(limit)
    return _sessions(store, query)


def running_sessions(store: Store) -> tuple[TuningSession, ...]:
    """List the sessions that still run, latest first."""
    query = (
        select(tuning_sessions)
        .where(tuning_sessions.c.state == "running")
        .order_by(tuning_sessions.c.started_at.desc())
    )
    return tuple(found for found in _sessions(store, query) if found.state == "running")


def find_session(store: Store, name: str) -> TuningSession:
    """Find a session by its id, by the beginning of its id, or as `latest`.

    Raise UsageError if no session has that name, or several.
    """
    query = select(tuning_sessions)
    named = select_named(query, tuning_sessions.c.id, tuning_sessions.c.started_at, name)
    found = () if named is None else _sessions(store, named)
    return only_one(found, name, _NAMED)


def progress_of(store: Store, session: str) -> tuple[TuningProgress, ...]:
    """List the points of a session's curve, oldest first."""
    query = (
        select(tuning_progress)
        .where(tuning_progress.c.session == session)
        .order_by(tuning_progress.c.at)
    )
    return tuple(TuningProgress(**row) for row in _rows(store, query))


def last_progress(store: Store, session: str) -> TuningProgress | None:
    """Return the last point of a session's curve."""
    query = (
        select(tuning_progress)
        .where(tuning_progress.c.session == session)
        .order_by(tuning_progress.c.at.desc())
        .limit(1)
    )
    return next((TuningProgress(**row) for row in _rows(store, query)), None)


def records_of(store: Store, key: str, target: str, version: int) -> tuple[TuningRecord, ...]:
    """List every candidate of one kernel on one kind of CPU, failed ones too, oldest first."""
    return _records(
        store,
        _joined().where(
            workloads.c.key == key,
            workloads.c.target_sha256 == hash_of(target),
            workloads.c.version == version,
        ),
    )


def records_of_session(store: Store, session: str) -> tuple[TuningRecord, ...]:
    """List the candidates of a session, oldest first."""
    return _records(store, _joined().where(tuning_records.c.session == session))


def all_records(store: Store) -> tuple[TuningRecord, ...]:
    """List every candidate, oldest first."""
    return _records(store, _joined())


def kernels_of(store: Store, session: str) -> tuple[KernelSearch, ...]:
    """Summarise a session by kernel, in the order of its search."""
    by_kernel: dict[tuple[str, int], list[TuningRecord]] = {}
    for record in records_of_session(store, session):
        by_kernel.setdefault((record.workload.key, record.workload.version), []).append(record)
    return tuple(_searched(records) for records in by_kernel.values())


def failures_of(store: Store, session: str) -> dict[str, int]:
    """Count a session's failed candidates by the kind of failure."""
    counts: dict[str, int] = {}
    for record in records_of_session(store, session):
        if record.error is not None:
            counts[record.error] = counts.get(record.error, 0) + 1
    return dict(sorted(counts.items()))


def _searched(records: Sequence[TuningRecord]) -> KernelSearch:
    timed = [record for record in records if record.best_us is not None and record.error is None]
    best = min(timed, key=lambda record: record.best_us or 0.0, default=None)
    first = records[0].workload
    return KernelSearch(
        key=first.key,
        words=first.words,
        trials=len(records),
        failed=len(records) - len(timed),
        best_us=None if best is None else best.best_us,
        own_us=None if best is None else best.own_us,
        choice=None if best is None else best.choice,
    )


def _sessions(store: Store, query: Select[Any]) -> tuple[TuningSession, ...]:
    return tuple(_session(row) for row in _rows(store, query))


def _session(row: RowMapping) -> TuningSession:
    values = {field.name: row[field.name] for field in fields(TuningSession)}
    session = TuningSession(**{**values, "devices": tuple(read_json(row["devices"]))})
    return replace(session, state="interrupted") if _is_gone(session) else session


def _is_gone(session: TuningSession) -> bool:
    if session.state != "running":
        return False
    if has_surely_ended(session.host, session.process):
        return True
    return seconds_since(session.heard_at) > SILENT_SECONDS


def _joined() -> Select[Any]:
    columns = [column for column in tuning_records.c if column.name != "workload_id"]
    facts = [workloads.c[field.name] for field in fields(Workload)]
    return (
        select(*columns, *facts)
        .join(workloads, tuning_records.c.workload_id == workloads.c.id)
        .order_by(tuning_records.c.measured_at, tuning_records.c.id)
    )


def _records(store: Store, query: Select[Any]) -> tuple[TuningRecord, ...]:
    """Read records. Those of one workload share one `Workload`."""
    shared: dict[Workload, Workload] = {}
    found = []
    for row in _rows(store, query):
        workload = Workload(**{field.name: row[field.name] for field in fields(Workload)})
        found.append(
            TuningRecord(
                workload=shared.setdefault(workload, workload),
                choice=choice_in(row["choice"]),
                **{
                    name: row[name]
                    for name in (
                        *("id", "session", "device", "measured_at"),
                        *("best_us", "own_us", "error"),
                    )
                },
            )
        )
    return tuple(found)


def _rows(store: Store, query: Select[Any]) -> Sequence[RowMapping]:
    return read(store, lambda connection: connection.execute(query).mappings().all())
