"""The tables of a store: dataclasses make them, and a released store has them already."""

from __future__ import annotations

from sqlalchemy import Table

from edgekit.store.tables import metadata

TABLES = """
[bench_runs]
build_id builds.id!, busy BOOLEAN!, device_id devices.id!, frequency_mhz FLOAT, governor
TEXT, host VARCHAR(200)!, id VARCHAR(32)!*, joules FLOAT, load_average FLOAT, mean
FLOAT!, measured_at VARCHAR(32)!, measured_by VARCHAR(20), median FLOAT!, minimum
FLOAT!, model_peak BIGINT,
notes TEXT!, p90 FLOAT!, p99 FLOAT!, preemptions INTEGER, process_peak BIGINT, profile TEXT, purpose
VARCHAR(20)!, samples BLOB!, sizes TEXT!, stdev FLOAT!, temperature_c FLOAT, threads INTEGER!,
throttled BOOLEAN, unit VARCHAR(20)!, warmup INTEGER!
[builds]
board VARCHAR(100)!, compiler TEXT!, digest VARCHAR(64)!, edgekit_version VARCHAR(50)!,
id INTEGER!*, model_id models.id!, offload TEXT!, target TEXT!, tvm_version VARCHAR(50)!
[best_records]
own_us FLOAT, record_id tuning_records.id!, workload_id workloads.id!*
[devices]
board VARCHAR(100)!, id INTEGER!*, name VARCHAR(200)!
[edgekit_store]
version INTEGER!
[evaluations]
build_id builds.id!, data TEXT!, device_id devices.id!, figures TEXT!, host VARCHAR(200)!,
id VARCHAR(32)!*, measured_at VARCHAR(32)!, measured_by VARCHAR(20), purpose VARCHAR(20)!,
samples INTEGER!, seconds FLOAT!, task VARCHAR(20)!
[models]
id INTEGER!*, name VARCHAR(500)!, sha256 VARCHAR(64)!
[region_costs]
agrees BOOLEAN!, backend VARCHAR(100)!, board VARCHAR(100)!*, device VARCHAR(200)!,
library_us FLOAT!, measured_at VARCHAR(40)!, measured_by VARCHAR(20), region
VARCHAR(200)!*, tvm_us FLOAT!,
version VARCHAR(100)!*
[tuning_progress]
at VARCHAR(40)!*, best_us FLOAT!, failed INTEGER!, own_us FLOAT!, session VARCHAR(32)!*,
trials INTEGER!
[tuning_records]
best_us FLOAT, choice TEXT!, choice_sha256 VARCHAR(64)!, device VARCHAR(200)!, error
VARCHAR(50), id VARCHAR(32)!*, measured_at VARCHAR(40)!, own_us FLOAT, session
VARCHAR(32), workload_id workloads.id!
[tuning_sessions]
board VARCHAR(100)!, devices TEXT!, ended_at VARCHAR(40), heard_at VARCHAR(40)!, host
VARCHAR(200)!, id VARCHAR(32)!*, kernels INTEGER!, measured_by VARCHAR(20), model
VARCHAR(500)!, model_sha256
VARCHAR(64)!, process VARCHAR(100)!, started_at VARCHAR(40)!, state VARCHAR(20)!, target
TEXT!, unit VARCHAR(20)!, wanted_seconds FLOAT, wanted_trials INTEGER
[workloads]
id INTEGER!*, key VARCHAR(200)!, module TEXT, target TEXT!, target_sha256 VARCHAR(64)!,
version INTEGER!, words TEXT!
"""
"""Each table's columns: name, type or foreign column, ! if required, * if in the primary key."""


def described(table: Table) -> str:
    columns = []
    for column in table.columns:
        kind = next((str(key.column) for key in column.foreign_keys), str(column.type))
        marks = ("" if column.nullable else "!") + ("*" if column.primary_key else "")
        columns.append(f"{column.name} {kind}{marks}")
    return ", ".join(sorted(columns))


def test_a_changed_dataclass_does_not_change_a_table_unnoticed() -> None:
    """A change needs a step in migrations.py, and then a change of TABLES."""
    parts = [part.partition("]\n") for part in TABLES.strip().split("[")[1:]]
    expected = {name: " ".join(columns.split()) for name, _, columns in parts}
    assert {name: described(table) for name, table in metadata.tables.items()} == expected
