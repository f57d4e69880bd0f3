"""The best record of each kernel, kept beside the records: a build reads one row a kernel."""

from __future__ import annotations

from sqlalchemy import Connection, select, text

from edgekit.store.tables import workloads

_RANKED = """
WITH counted AS (
    SELECT r.id, r.workload_id, r.best_us, r.own_us, r.error, r.measured_at,
        row_number() OVER (
            PARTITION BY r.device, r.choice_sha256 ORDER BY r.measured_at DESC, r.id
        ) AS age,
        first_value(r.own_us) OVER (
            ORDER BY CASE WHEN r.own_us > 0 THEN 0 ELSE 1 END, r.measured_at DESC, r.id
        ) AS newest_own
    FROM tuning_records r
    WHERE r.workload_id = :workload
        AND ((r.error IS NULL AND r.best_us IS NOT NULL) OR r.error = 'numbers')
)
INSERT INTO best_records (workload_id, record_id, own_us)
SELECT workload_id, id, coalesce(own_us, newest_own)
FROM counted
WHERE age = 1 AND error IS NULL
ORDER BY best_us / coalesce(nullif(own_us, 0.0), nullif(newest_own, 0.0), 1.0), measured_at DESC, id
LIMIT 1
"""
"""Devices differ, so records are ranked by their time relative to the rule's own choice, measured
together. Of several records of one choice on one device the newest counts, and none if it gave
other numbers then."""


def lock_kernel(connection: Connection, workload: int) -> None:
    """Make other hosts that save records of a kernel wait until this transaction ends."""
    query = select(workloads.c.id).where(workloads.c.id == workload)
    connection.execute(query.with_for_update(key_share=True))


def rank_kernel(connection: Connection, workload: int) -> None:
    """Find the best record of a kernel anew. Where others may write, lock the kernel before."""
    values = {"workload": workload}
    connection.execute(text("DELETE FROM best_records WHERE workload_id = :workload"), values)
    connection.execute(text(_RANKED), values)


def rank_all(connection: Connection) -> None:
    """Find the best record of every kernel anew."""
    for workload in connection.execute(select(workloads.c.id)).scalars().all():
        rank_kernel(connection, workload)
