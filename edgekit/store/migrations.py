"""Steps that bring an older store to the newest version, in one transaction.

A released step is never changed; a new one is added. A step that makes a table makes it as
`tables.py` has it now, so a step that adds a column must add it only if it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, text

from edgekit.base.errors import StoreError
from edgekit.store.old_records import fill_measurers
from edgekit.store.ranking import rank_all
from edgekit.store.tables import metadata, versions


@dataclass(frozen=True)
class Migration:
    """A change from version `to - 1` to version `to`."""

    to: int
    what: str
    run: Callable[[Connection], None]


def _first_tables(connection: Connection) -> None:
    _create(connection, "devices", "models", "builds", "bench_runs")


def _region_costs(connection: Connection) -> None:
    _create(connection, "region_costs")


def _tuning(connection: Connection) -> None:
    _create(connection, "workloads", "tuning_records")


def _large_peaks(connection: Connection) -> None:
    """Widen columns for models above 2 GiB. SQLite's numbers have any size."""
    if connection.dialect.name == "postgresql":
        for column in ("model_peak", "process_peak"):
            connection.execute(text(f"ALTER TABLE bench_runs ALTER COLUMN {column} TYPE BIGINT"))


def _tuning_history(connection: Connection) -> None:
    """Make step 3's tables again: no edgekit ever wrote into them."""
    for name in ("tuning_records", "workloads"):
        connection.execute(text(f"DROP TABLE {name}"))
    _create(connection, "workloads", "tuning_records", "tuning_sessions", "tuning_progress")


def _measurers(connection: Connection) -> None:
    for table in ("bench_runs", "region_costs", "tuning_sessions"):
        _add_column(connection, table, "measured_by", "VARCHAR(20)")
    _add_column(connection, "tuning_sessions", "unit", "VARCHAR(20) NOT NULL DEFAULT 'seconds'")
    fill_measurers(connection)


def _sizes(connection: Connection) -> None:
    _add_column(connection, "bench_runs", "sizes", "TEXT NOT NULL DEFAULT ''")


def _profiles(connection: Connection) -> None:
    _add_column(connection, "bench_runs", "profile", "TEXT")


def _best_records(connection: Connection) -> None:
    _create(connection, "best_records")
    rank_all(connection)


def _evaluations(connection: Connection) -> None:
    _create(connection, "evaluations")


STEPS: tuple[Migration, ...] = (
    Migration(1, "benchmark runs with their builds, models and devices", _first_tables),
    Migration(2, "costs of regions in libraries and in TVM", _region_costs),
    Migration(3, "tuning workloads and records", _tuning),
    Migration(4, "memory above 2 GiB", _large_peaks),
    Migration(5, "searches for faster kernels, with every candidate", _tuning_history),
    Migration(6, "what measured each number", _measurers),
    Migration(7, "the sizes of inputs that vary", _sizes),
    Migration(8, "the time of each step of a run", _profiles),
    Migration(9, "the best candidate of each kernel", _best_records),
    Migration(10, "the accuracy of builds on data sets", _evaluations),
)

NEWEST = STEPS[-1].to


def _create(connection: Connection, *names: str) -> None:
    metadata.create_all(connection, [metadata.tables[name] for name in names])


def _add_column(connection: Connection, table: str, name: str, form: str) -> None:
    """Add a column, unless an earlier step has made the table as it is now."""
    if name not in {column["name"] for column in inspect(connection).get_columns(table)}:
        connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {name} {form}"))


def version_of(connection: Connection) -> int:
    """Return the version of a store; 0 for an empty database."""
    if not inspect(connection).has_table(versions.name):
        return 0
    found = connection.execute(versions.select()).scalar()
    return 0 if found is None else int(found)


def refuse_strangers(connection: Connection, where: str) -> None:
    """Raise StoreError for a database with tables of something else only."""
    names = set(inspect(connection).get_table_names())
    if names and versions.name not in names:
        raise StoreError(
            f"{where} is a database of something else: it holds {', '.join(sorted(names)[:3])}",
            hint="use a separate database for edgekit's measurements",
        )


def migrate(connection: Connection, to: int = NEWEST) -> tuple[Migration, ...]:
    """Bring the store to a version. Return the steps taken. Needs a transaction with the lock."""
    at = version_of(connection)
    if at > NEWEST:
        raise StoreError(
            f"the store is of version {at}, and this edgekit supports versions up to {NEWEST}",
            hint="upgrade edgekit on this host: a newer one has used the store",
        )
    taken = tuple(step for step in STEPS if at < step.to <= to)
    if not taken:
        return ()
    if at == 0:
        metadata.create_all(connection, [versions])
        connection.execute(versions.insert().values(version=0))
    for step in taken:
        step.run(connection)
        connection.execute(text(f"UPDATE {versions.name} SET version = {step.to:d}"))
    return taken
