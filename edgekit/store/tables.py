"""The tables of the newest version. `migrations.py` brings older stores to it.

Where a table holds one dataclass, its columns are that dataclass's fields. A changed field is a
changed table: it needs a step in `migrations.py`.
"""

from __future__ import annotations

import types
import typing
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from edgekit.store.checked import LENGTHS, WIDE_NUMBERS
from edgekit.store.runs import BenchRun, BuildFacts, Conditions, RegionCost
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession, Workload

_NUMBERS = {int: Integer, float: Float, bool: Boolean}


def _column(where: str, hint: Any, *, key: bool = False) -> Column[Any]:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    length = LENGTHS.get(where)
    kind: Any = _NUMBERS.get(options[0], Text) if length is None else String(length)
    if where in WIDE_NUMBERS:
        kind = BigInteger
    optional = type(None) in options
    return Column(where.rpartition(".")[2], kind, primary_key=key, nullable=optional)


def _columns(
    kind: type, where: str, *, keys: tuple[str, ...] = (), without: tuple[str, ...] = ()
) -> list[Column[Any]]:
    """Make a column of each field of a dataclass; texts are as long as `LENGTHS` says."""
    hints = typing.get_type_hints(kind)
    return [
        _column(f"{where}.{name}", hint, key=name in keys)
        for name, hint in hints.items()
        if name not in without
    ]


metadata = MetaData()

versions = Table("edgekit_store", metadata, Column("version", Integer, nullable=False))
"""The version of the store, in one row."""

devices = Table(
    "devices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(LENGTHS["run.device"]), nullable=False),
    Column("board", String(LENGTHS["run.build.board"]), nullable=False),
    UniqueConstraint("name", "board"),
)

models = Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(LENGTHS["run.build.model"]), nullable=False),
    Column("sha256", String(LENGTHS["run.build.model_sha256"]), nullable=False, unique=True),
)

builds = Table(
    "builds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("model_id", ForeignKey("models.id"), nullable=False),
    *_columns(BuildFacts, "run.build", without=("model", "model_sha256")),
    UniqueConstraint("digest"),
)

bench_runs = Table(
    "bench_runs",
    metadata,
    Column("build_id", ForeignKey("builds.id"), nullable=False),
    Column("device_id", ForeignKey("devices.id"), nullable=False),
    *_columns(
        *(BenchRun, "run"),
        keys=("id",),
        without=("build", "device", "conditions", "samples"),
    ),
    *_columns(Conditions, "run.conditions"),
    Column("samples", LargeBinary, nullable=False),
    Index("bench_runs_by_time", "measured_at"),
)

region_costs = Table(
    "region_costs", metadata, *_columns(RegionCost, "region", keys=("region", "board", "version"))
)

workloads = Table(
    "workloads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("target_sha256", String(64), nullable=False),
    *_columns(Workload, "workload"),
    UniqueConstraint("target_sha256", "version", "key"),
)
"""One row per kernel and target; `target_sha256` is the hash of `target`."""

tuning_records = Table(
    "tuning_records",
    metadata,
    Column("workload_id", ForeignKey("workloads.id"), nullable=False),
    Column("choice_sha256", String(64), nullable=False),
    *_columns(TuningRecord, "record", keys=("id",), without=("workload",)),
    Index(
        "records_to_rank",
        *("workload_id", "device", "choice_sha256", "measured_at"),
        *("id", "best_us", "own_us", "error"),
    ),
    Index("records_of_session", "session"),
)
"""One row per candidate. The first index holds all that ranking needs, so that a build does not
read the long choices. `session` is no foreign key: records may arrive before their session."""

tuning_sessions = Table(
    "tuning_sessions",
    metadata,
    *_columns(TuningSession, "session", keys=("id",)),
    Index("sessions_by_time", "started_at"),
)

tuning_progress = Table(
    "tuning_progress", metadata, *_columns(TuningProgress, "progress", keys=("session", "at"))
)
