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

from edgekit.base.decode import Most, Range
from edgekit.store.fields import BoardName, Hash, ModelName, Name
from edgekit.store.runs import BenchRun, BuildFacts, Conditions, Evaluation, RegionCost
from edgekit.store.tuning_runs import TuningProgress, TuningRecord, TuningSession, Workload

_NUMBERS = {int: BigInteger, float: Float, bool: Boolean}
_LONGEST_STRING = 500
"""Texts of which more characters are allowed have a column without a limit."""


def _kind(hint: Any) -> Any:
    """Return the type of the column for a field's type."""
    if typing.get_origin(hint) is typing.Literal:
        return String(20)
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Range):
            return Integer
        if isinstance(mark, Most) and mark.count <= _LONGEST_STRING:
            return String(mark.count)
    return _NUMBERS.get(hint, Text)


def _columns(
    kind: type, *, keys: tuple[str, ...] = (), without: tuple[str, ...] = ()
) -> list[Column[Any]]:
    """Make a column of each field of a dataclass."""
    columns = []
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        options = typing.get_args(hint) if is_union else (hint,)
        if name not in without:
            is_key, is_optional = name in keys, type(None) in options
            columns.append(
                Column(name, _kind(options[0]), primary_key=is_key, nullable=is_optional)
            )
    return columns


metadata = MetaData()

versions = Table("edgekit_store", metadata, Column("version", Integer, nullable=False))
"""The version of the store, in one row."""

devices = Table(
    "devices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _kind(Name), nullable=False),
    Column("board", _kind(BoardName), nullable=False),
    UniqueConstraint("name", "board"),
)

models = Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", _kind(ModelName), nullable=False),
    Column("sha256", _kind(Hash), nullable=False, unique=True),
)

builds = Table(
    "builds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("model_id", ForeignKey("models.id"), nullable=False),
    *_columns(BuildFacts, without=("model", "model_sha256")),
    UniqueConstraint("digest"),
)

bench_runs = Table(
    "bench_runs",
    metadata,
    Column("build_id", ForeignKey("builds.id"), nullable=False),
    Column("device_id", ForeignKey("devices.id"), nullable=False),
    *_columns(
        BenchRun,
        keys=("id",),
        without=("build", "device", "conditions", "samples"),
    ),
    *_columns(Conditions),
    Column("samples", LargeBinary, nullable=False),
    Index("bench_runs_by_time", "measured_at"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("build_id", ForeignKey("builds.id"), nullable=False),
    Column("device_id", ForeignKey("devices.id"), nullable=False),
    *_columns(Evaluation, keys=("id",), without=("build", "device")),
    Index("evaluations_by_time", "measured_at"),
    Index("evaluations_of_build", "build_id", "measured_at"),
)

region_costs = Table(
    "region_costs", metadata, *_columns(RegionCost, keys=("region", "board", "version"))
)

workloads = Table(
    "workloads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("target_sha256", String(64), nullable=False),
    *_columns(Workload),
    UniqueConstraint("target_sha256", "version", "key"),
)
"""One row per kernel and target; `target_sha256` is the hash of `target`."""

tuning_records = Table(
    "tuning_records",
    metadata,
    Column("workload_id", ForeignKey("workloads.id"), nullable=False),
    Column("choice_sha256", String(64), nullable=False),
    *_columns(TuningRecord, keys=("id",), without=("workload",)),
    Index(
        "records_to_rank",
        *("workload_id", "device", "choice_sha256", "measured_at"),
        *("id", "best_us", "own_us", "error"),
    ),
    Index("records_of_session", "session"),
)
"""One row per candidate. The first index holds all that ranking needs, so that it does
not read the long choices. `session` is no foreign key: records may arrive before their session."""

best_records = Table(
    "best_records",
    metadata,
    Column("workload_id", ForeignKey("workloads.id"), primary_key=True),
    Column("record_id", ForeignKey("tuning_records.id"), nullable=False),
    Column("own_us", Float),
)
"""The best candidate of each kernel that has one, with the time that it is held against."""

tuning_sessions = Table(
    "tuning_sessions",
    metadata,
    *_columns(TuningSession, keys=("id",)),
    Index("sessions_by_time", "started_at"),
)

tuning_progress = Table(
    "tuning_progress", metadata, *_columns(TuningProgress, keys=("session", "at"))
)
