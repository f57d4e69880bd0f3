"""Searches for faster kernels in the store. Whoever searches writes through `tuning_log.py`, which
loses nothing where the store can't be reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, select, text, update

from edgekit.base.errors import UsageError
from edgekit.base.json_reader import read_json
from edgekit.store.database import Store, read, written
from edgekit.store.moments import is_known_gone, now, seconds_since
from edgekit.store.queries import BEST_OF, best_from_row, choice_in, hash_of
from edgekit.store.rows import id_of, insert_missing, insert_or_renew
from edgekit.store.tables import tuning_progress, tuning_records, tuning_sessions, workloads
from edgekit.store.tuning_runs import (
    BestRecord,
    KernelSearch,
    SessionState,
    TuningProgress,
    TuningRecord,
    TuningSession,
    Workload,
)

SILENT_SECONDS = 180.0
"""A session that says nothing for so long is gone: it gives a sign of life every half minute."""
_SHORTEST_PREFIX = 4


def begin_session(store: Store, session: TuningSession) -> None:
    written(store, lambda connection: save_session(connection, session))


def add_records(
    store: Store, records: Sequence[TuningRecord], progress: TuningProgress | None = None
) -> int:
    """All of it or nothing. Gives how many records were not there yet."""
    points = () if progress is None else (progress,)
    return written(store, lambda connection: save_records(connection, records, points))


def end_session(store: Store, session: str, state: SessionState) -> None:
    moment = now()
    change = (
        update(tuning_sessions)
        .where(tuning_sessions.c.id == session)
        .values(state=state, ended_at=moment, heard_at=moment)
    )
    written(store, lambda connection: connection.execute(change))


def give_sign_of_life(store: Store, session: str) -> None:
    change = (
        update(tuning_sessions)
        .where(tuning_sessions.c.id == session, tuning_sessions.c.state == "running")
        .values(heard_at=now())
    )
    written(store, lambda connection: connection.execute(change))


def sessions(store: Store, limit: int = 50) -> tuple[TuningSession, ...]:
    """The latest first. One whose process is gone is "interrupted"."""
    query = select(tuning_sessions).order_by(tuning_sessions.c.started_at.desc()).limit(limit)
    return _sessions(store, query)


def running_sessions(store: Store) -> tuple[TuningSession, ...]:
    """The latest first."""
    query = (
        select(tuning_sessions)
        .where(tuning_sessions.c.state == "running")
        .order_by(tuning_sessions.c.started_at.desc())
    )
    return tuple(found for found in _sessions(store, query) if found.state == "running")


def find_session(store: Store, name: str) -> TuningSession:
    """By its id or the beginning of it, or `latest`; UsageError where that is none, or several."""
    query = select(tuning_sessions)
    if name == "latest":
        query = query.order_by(tuning_sessions.c.started_at.desc()).limit(1)
    elif len(name) < _SHORTEST_PREFIX or any(c not in "0123456789abcdef" for c in name.lower()):
        raise UsageError(
            f"{name!r} is no tuning session",
            hint="`edgekit results tuning` shows the ids; latest is one too",
        )
    else:
        query = query.where(tuning_sessions.c.id.startswith(name.lower(), autoescape=True)).limit(2)
    found = _sessions(store, query)
    if len(found) > 1:
        raise UsageError(f"several tuning sessions begin with {name}", hint="write more of the id")
    if not found:
        raise UsageError(
            "the store holds no tuning session yet"
            if name == "latest"
            else f"there is no tuning session {name}",
            hint="`edgekit results tuning` shows those that there are",
        )
    return found[0]


def progress_of(store: Store, session: str) -> tuple[TuningProgress, ...]:
    """The oldest first."""
    query = (
        select(tuning_progress)
        .where(tuning_progress.c.session == session)
        .order_by(tuning_progress.c.at)
    )
    return tuple(TuningProgress(**row) for row in _rows(store, query))


def last_progress(store: Store, session: str) -> TuningProgress | None:
    query = (
        select(tuning_progress)
        .where(tuning_progress.c.session == session)
        .order_by(tuning_progress.c.at.desc())
        .limit(1)
    )
    return next((TuningProgress(**row) for row in _rows(store, query)), None)


def records_of(store: Store, key: str, target: str, version: int) -> tuple[TuningRecord, ...]:
    """Every candidate of one kernel on one kind of CPU, failed ones too, the oldest first."""
    return _records(
        store,
        _joined().where(
            workloads.c.key == key,
            workloads.c.target_sha256 == hash_of(target),
            workloads.c.version == version,
        ),
    )


def records_of_session(store: Store, session: str) -> tuple[TuningRecord, ...]:
    """The oldest first."""
    return _records(store, _joined().where(tuning_records.c.session == session))


def all_records(store: Store) -> tuple[TuningRecord, ...]:
    """The oldest first."""
    return _records(store, _joined())


def best_of(store: Store, target: str, version: int) -> dict[str, BestRecord]:
    """By the kernel's key."""
    given = {"target": hash_of(target), "version": version}
    rows = read(store, lambda connection: connection.execute(text(BEST_OF), given).all())
    return {row[0]: best_from_row(row) for row in rows}


def kernels_of(store: Store, session: str) -> tuple[KernelSearch, ...]:
    """What a session did for each kernel, in the order in which it came to them."""
    by_kernel: dict[tuple[str, int], list[TuningRecord]] = {}
    for record in records_of_session(store, session):
        by_kernel.setdefault((record.workload.key, record.workload.version), []).append(record)
    return tuple(_searched(records) for records in by_kernel.values())


def failures_of(store: Store, session: str) -> dict[str, int]:
    """How many candidates failed, by the kind of failure."""
    counts: dict[str, int] = {}
    for record in records_of_session(store, session):
        if record.error is not None:
            counts[record.error] = counts.get(record.error, 0) + 1
    return dict(sorted(counts.items()))


def save_session(connection: Connection, session: TuningSession) -> None:
    values = {**asdict(session), "devices": json.dumps(session.devices)}
    insert_or_renew(connection, tuning_sessions, values, newer_by="heard_at")


def save_records(
    connection: Connection, records: Sequence[TuningRecord], points: Sequence[TuningProgress]
) -> int:
    # In one order everywhere: two hosts that meet the same new kernels don't wait for each other.
    workloads = sorted({r.workload for r in records}, key=lambda w: (w.target, w.version, w.key))
    numbers = {workload: _number_of(connection, workload) for workload in workloads}
    new = sum(
        insert_missing(connection, tuning_records, _values_of(record, numbers[record.workload]))
        for record in records
    )
    for point in points:
        insert_missing(connection, tuning_progress, asdict(point))
        connection.execute(
            update(tuning_sessions)
            .where(tuning_sessions.c.id == point.session, tuning_sessions.c.heard_at < point.at)
            .values(heard_at=point.at)
        )
    return new


def _number_of(connection: Connection, workload: Workload) -> int:
    key = {
        "key": workload.key,
        "target_sha256": hash_of(workload.target),
        "version": workload.version,
    }
    others = {"target": workload.target, "words": workload.words, "module": workload.module}
    number = id_of(connection, workloads, key, others)
    if workload.module is not None:  # it may have been there without
        connection.execute(
            update(workloads)
            .where(workloads.c.id == number, workloads.c.module.is_(None))
            .values(module=workload.module)
        )
    return number


def _values_of(record: TuningRecord, workload: int) -> Mapping[str, object]:
    plain = ("id", "session", "device", "measured_at", "best_us", "own_us", "error")
    choice = json.dumps(record.choice, sort_keys=True)
    return {
        **{name: getattr(record, name) for name in plain},
        "workload_id": workload,
        "choice": choice,
        "choice_sha256": hash_of(choice),
    }


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
    if is_known_gone(session.host, session.process):
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
    """One description of a workload serves all of its records."""
    known: dict[Workload, Workload] = {}
    found = []
    for row in _rows(store, query):
        workload = Workload(**{field.name: row[field.name] for field in fields(Workload)})
        found.append(
            TuningRecord(
                workload=known.setdefault(workload, workload),
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
