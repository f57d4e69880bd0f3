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

VERSION = 10
"""The store's version: the last step of `migrations.py`."""

BEST_OF = """
SELECT w.key, w.words, r.choice, r.best_us, b.own_us, r.device, r.measured_at
FROM workloads w
    JOIN best_records b ON b.workload_id = w.id
    JOIN tuning_records r ON r.id = b.record_id
WHERE w.target_sha256 = :target AND w.version = :version
ORDER BY w.key
"""
"""The best record of each kernel, which `ranking.py` keeps."""

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
