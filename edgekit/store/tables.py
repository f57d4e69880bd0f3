"""The tables, as the newest edgekit has them. `migrations.py` brings older stores here."""

from __future__ import annotations

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

metadata = MetaData()

versions = Table(
    "edgekit_store",
    metadata,
    Column("version", Integer, nullable=False),
)
"""One row."""

devices = Table(
    "devices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("board", String(100), nullable=False),
    UniqueConstraint("name", "board"),
)

models = Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(500), nullable=False),
    Column("sha256", String(64), nullable=False, unique=True),
)

builds = Table(
    "builds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("model_id", ForeignKey("models.id"), nullable=False),
    Column("board", String(100), nullable=False),
    Column("target", Text, nullable=False),
    Column("compiler", Text, nullable=False),
    Column("offload", Text, nullable=False),
    Column("edgekit_version", String(50), nullable=False),
    Column("tvm_version", String(50), nullable=False),
)

bench_runs = Table(
    "bench_runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("build_id", ForeignKey("builds.id"), nullable=False),
    Column("device_id", ForeignKey("devices.id"), nullable=False),
    Column("measured_at", String(32), nullable=False),
    Column("host", String(200), nullable=False),
    Column("purpose", String(20), nullable=False),
    Column("unit", String(20), nullable=False),
    Column("median", Float, nullable=False),
    Column("p90", Float, nullable=False),
    Column("p99", Float, nullable=False),
    Column("mean", Float, nullable=False),
    Column("minimum", Float, nullable=False),
    Column("stdev", Float, nullable=False),
    Column("samples", LargeBinary, nullable=False),
    Column("warmup", Integer, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("model_peak", BigInteger),
    Column("process_peak", BigInteger),
    Column("governor", Text),
    Column("frequency_mhz", Float),
    Column("load_average", Float),
    Column("busy", Boolean, nullable=False),
    Column("preemptions", Integer),
    Column("temperature_c", Float),
    Column("throttled", Boolean),
    Column("joules", Float),
    Column("notes", Text, nullable=False),
    Index("bench_runs_by_time", "measured_at"),
)

region_costs = Table(
    "region_costs",
    metadata,
    Column("region", String(200), primary_key=True),
    Column("board", String(100), primary_key=True),
    Column("backend", String(100), nullable=False),
    Column("version", String(100), primary_key=True),
    Column("library_us", Float, nullable=False),
    Column("tvm_us", Float, nullable=False),
    Column("agrees", Boolean, nullable=False),
    Column("device", String(200), nullable=False),
    Column("measured_at", String(40), nullable=False),
)

workloads = Table(
    "workloads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String(200), nullable=False),
    Column("target_sha256", String(64), nullable=False),
    Column("target", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("words", Text, nullable=False),
    Column("module", Text),
    UniqueConstraint("target_sha256", "version", "key"),
)
"""`module` is MetaSchedule's own JSON of the workload; `target_sha256` is the hash of `target`."""

tuning_records = Table(
    "tuning_records",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workload_id", ForeignKey("workloads.id"), nullable=False),
    Column("session", String(32)),
    Column("device", String(200), nullable=False),
    Column("measured_at", String(40), nullable=False),
    Column("choice_sha256", String(64), nullable=False),
    Column("choice", Text, nullable=False),
    Column("best_us", Float),
    Column("own_us", Float),
    Column("error", String(50)),
    Index(
        "records_to_rank",
        *("workload_id", "device", "choice_sha256", "measured_at"),
        *("id", "best_us", "own_us", "error"),
    ),
    Index("records_of_session", "session"),
)
"""A build ranks records by the first index alone: traces are long, and stay where they are.
`session` points nowhere in particular: what it began with may arrive later, or never."""

tuning_sessions = Table(
    "tuning_sessions",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("model", String(500), nullable=False),
    Column("model_sha256", String(64), nullable=False),
    Column("board", String(100), nullable=False),
    Column("target", Text, nullable=False),
    Column("devices", Text, nullable=False),
    Column("host", String(200), nullable=False),
    Column("process", String(100), nullable=False),
    Column("started_at", String(40), nullable=False),
    Column("heard_at", String(40), nullable=False),
    Column("ended_at", String(40)),
    Column("state", String(20), nullable=False),
    Column("kernels", Integer, nullable=False),
    Column("wanted_trials", Integer),
    Column("wanted_seconds", Float),
    Index("sessions_by_time", "started_at"),
)

tuning_progress = Table(
    "tuning_progress",
    metadata,
    Column("session", String(32), primary_key=True),
    Column("at", String(40), primary_key=True),
    Column("trials", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("own_us", Float, nullable=False),
    Column("best_us", Float, nullable=False),
)
