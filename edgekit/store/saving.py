"""Findings written into the tables, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, update

from edgekit.store.database import Store, write
from edgekit.store.evaluations import save_evaluation
from edgekit.store.findings import Findings
from edgekit.store.queries import hash_of
from edgekit.store.ranking import lock_kernel, rank_kernel
from edgekit.store.rows import id_of, insert_missing, insert_or_update
from edgekit.store.tables import (
    region_costs,
    tuning_progress,
    tuning_records,
    tuning_sessions,
    workloads,
)
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession, Workload


def save_findings(store: Store, findings: Sequence[Findings]) -> int:
    """Save findings in one transaction.

    Return the number of new candidates, of regions, and of new evaluations.
    """

    records = [record for found in findings for record in found.records]
    points = [found.progress for found in findings if found.progress is not None]
    regions = [region for found in findings for region in found.regions]
    evaluations = [evaluation for found in findings for evaluation in found.evaluations]

    def work(connection: Connection) -> int:
        for found in findings:
            if found.session is not None:
                _save_session(connection, found.session)
        new = _save_records(connection, records)
        for point in points:
            _save_point(connection, point)
        for region in regions:
            insert_or_update(connection, region_costs, asdict(region), newer_by="measured_at")
        return new + len(regions) + sum(save_evaluation(connection, one) for one in evaluations)

    return write(store, work)


def _save_session(connection: Connection, session: TuningSession) -> None:
    values = {**asdict(session), "devices": json.dumps(session.devices)}
    insert_or_update(connection, tuning_sessions, values, newer_by="heard_at", final_by="ended_at")


def _save_records(connection: Connection, records: Sequence[TuningRecord]) -> int:
    # In one order everywhere: two hosts that save the same new kernels don't deadlock.
    workloads = sorted({r.workload for r in records}, key=lambda w: (w.target, w.version, w.key))
    ids = {workload: _id_of(connection, workload) for workload in workloads}
    new = [
        record
        for record in records
        if insert_missing(connection, tuning_records, _values_of(record, ids[record.workload]))
    ]
    for number in {ids[record.workload] for record in new}:
        rank_kernel(connection, number)
    return len(new)


def _save_point(connection: Connection, point: TuningProgress) -> None:
    insert_missing(connection, tuning_progress, asdict(point))
    connection.execute(
        update(tuning_sessions)
        .where(tuning_sessions.c.id == point.session, tuning_sessions.c.heard_at < point.at)
        .values(heard_at=point.at)
    )


def _id_of(connection: Connection, workload: Workload) -> int:
    key = {
        "key": workload.key,
        "target_sha256": hash_of(workload.target),
        "version": workload.version,
    }
    others = {"target": workload.target, "words": workload.words, "module": workload.module}
    number = id_of(connection, workloads, key, others)
    lock_kernel(connection, number)
    if workload.module is not None:  # an earlier record may have come without one
        connection.execute(
            update(workloads)
            .where(workloads.c.id == number, workloads.c.module.is_(None))
            .values(module=workload.module)
        )
    return number


def _values_of(record: TuningRecord, workload_id: int) -> Mapping[str, object]:
    plain = ("id", "session", "device", "measured_at", "best_us", "own_us", "error")
    choice = json.dumps(record.choice, sort_keys=True)
    return {
        **{name: getattr(record, name) for name in plain},
        "workload_id": workload_id,
        "choice": choice,
        "choice_sha256": hash_of(choice),
    }
