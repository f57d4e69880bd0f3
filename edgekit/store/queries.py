"""The queries of every build, in SQL for both SQLite and PostgreSQL.

`lookup.py` reads an SQLite file without SQLAlchemy, whose import takes longer than a build from the
cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.base.json_reader import read_json
from edgekit.store.runs import RegionCost
from edgekit.store.tuning_runs import BestRecord

VERSION = 8
"""The store's version: the last step of `migrations.py`."""

BEST_OF = """
WITH counted AS (
    SELECT r.id, r.workload_id, r.best_us, r.own_us, r.error, r.measured_at,
        row_number() OVER (
            PARTITION BY r.workload_id, r.device, r.choice_sha256
            ORDER BY r.measured_at DESC, r.id
        ) AS age,
        first_value(r.own_us) OVER (
            PARTITION BY r.workload_id
            ORDER BY CASE WHEN r.own_us > 0 THEN 0 ELSE 1 END, r.measured_at DESC, r.id
        ) AS newest_own
    FROM tuning_records r
    WHERE r.workload_id IN (
            SELECT id FROM workloads WHERE target_sha256 = :target AND version = :version
        )
        AND ((r.error IS NULL AND r.best_us IS NOT NULL) OR r.error = 'numbers')
), ranked AS (
    SELECT id, coalesce(own_us, newest_own) AS own_us,
        row_number() OVER (
            PARTITION BY workload_id
            ORDER BY best_us / coalesce(nullif(own_us, 0.0), nullif(newest_own, 0.0), 1.0),
                measured_at DESC, id
        ) AS place
    FROM counted
    WHERE age = 1 AND error IS NULL
)
SELECT w.key, w.words, r.choice, r.best_us, ranked.own_us, r.device, r.measured_at
FROM ranked JOIN tuning_records r ON r.id = ranked.id JOIN workloads w ON w.id = r.workload_id
WHERE ranked.place = 1
ORDER BY w.key
"""
"""The best record of each kernel. Devices differ, so records are ranked by their time relative to
the rule's own choice, measured together. Of several records of one choice on one device the newest
counts, and none if it gave other numbers then."""

REGION_COSTS = """
SELECT region, board, backend, version, library_us, tvm_us, agrees, device, measured_at, measured_by
FROM region_costs WHERE board = :board
"""


def hash_of(text: str) -> str:
    """Hash a long text, for columns that are looked up."""
    return hashlib.sha256(text.encode()).hexdigest()


def choice_in(text: str) -> Mapping[str, object]:
    """Read a choice. Return an empty one, which is no choice, for any other text."""
    try:
        choice = read_json(text)
    except (ValueError, RecursionError):
        return {}
    return choice if isinstance(choice, dict) else {}


def best_from_row(row: Sequence[Any]) -> BestRecord:
    key, words, choice, best_us, own_us, device, measured_at = row
    return BestRecord(key, words, choice_in(choice), best_us, own_us, device, measured_at)


def cost_from_row(row: Sequence[Any]) -> RegionCost:
    region, board, backend, version, library_us, tvm_us, agrees, device, *measured = row
    costs = (library_us, tvm_us, bool(agrees))
    return RegionCost(region, board, backend, version, *costs, device, *measured)
