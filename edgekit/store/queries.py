"""What every build asks, as SQL that SQLite and PostgreSQL both understand: `known.py` asks an
SQLite file without SQLAlchemy, whose import takes longer than a build that is in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.store.regions import RegionCost
from edgekit.store.tuning_runs import BestRecord

VERSION = 5
"""Of the store: the last step of `migrations.py`."""

BEST_OF = """
WITH counted AS (
    SELECT r.id, r.workload_id, r.best_us, r.own_us, r.error, r.measured_at,
        row_number() OVER (
            PARTITION BY r.workload_id, r.device, r.choice_sha256
            ORDER BY r.measured_at DESC, r.id
        ) AS age
    FROM tuning_records r JOIN workloads w ON w.id = r.workload_id
    WHERE w.target_sha256 = :target AND w.version = :version
        AND ((r.error IS NULL AND r.best_us IS NOT NULL) OR r.error = 'numbers')
), own AS (
    SELECT workload_id, own_us,
        row_number() OVER (PARTITION BY workload_id ORDER BY measured_at DESC, id) AS age
    FROM counted WHERE own_us > 0
), ranked AS (
    SELECT c.id, coalesce(c.own_us, own.own_us) AS own_us,
        row_number() OVER (
            PARTITION BY c.workload_id
            ORDER BY c.best_us / coalesce(nullif(c.own_us, 0.0), own.own_us, 1.0),
                c.measured_at DESC, c.id
        ) AS place
    FROM counted c LEFT JOIN own ON own.workload_id = c.workload_id AND own.age = 1
    WHERE c.age = 1 AND c.error IS NULL
)
SELECT w.key, w.words, r.choice, r.best_us, ranked.own_us, r.device, r.measured_at
FROM ranked JOIN tuning_records r ON r.id = ranked.id JOIN workloads w ON w.id = r.workload_id
WHERE ranked.place = 1
ORDER BY w.key
"""
"""The best record of each kernel. Devices differ, so each time is held against what the rule's own
choice took beside it. Of a choice that one device measured several times the newest counts, and
none where it gave other numbers then."""

REGION_COSTS = """
SELECT region, board, backend, version, library_us, tvm_us, agrees, device, measured_at
FROM region_costs WHERE board = :board
"""


def hash_of(text: str) -> str:
    """By which long texts are looked up."""
    return hashlib.sha256(text.encode()).hexdigest()


def choice_in(text: str) -> Mapping[str, object]:
    """Empty, which is no choice, for what some other program wrote into the table."""
    try:
        choice = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return choice if isinstance(choice, dict) else {}


def best_from_row(row: Sequence[Any]) -> BestRecord:
    key, words, choice, best_us, own_us, device, measured_at = row
    return BestRecord(key, words, choice_in(choice), best_us, own_us, device, measured_at)


def cost_from_row(row: Sequence[Any]) -> RegionCost:
    region, board, backend, version, library_us, tvm_us, agrees, device, measured_at = row
    costs = (library_us, tvm_us, bool(agrees))
    return RegionCost(region, board, backend, version, *costs, device, measured_at)
