"""How an older store becomes one of today, step by step, each in its own transaction.

A step is never changed once it was released: a new one is added. What a later step adds to a table
of an earlier one is in `tables.py` too: a step that makes a table makes it as it is today, and one
that adds a column adds it where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, text

from edgekit.base.errors import StoreError
from edgekit.store.tables import metadata, versions


@dataclass(frozen=True)
class Step:
    """From version `to - 1` to version `to`."""

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
    """Bytes of models above 2 GiB. SQLite's numbers are of any size."""
    if connection.dialect.name == "postgresql":
        for column in ("model_peak", "process_peak"):
            connection.execute(text(f"ALTER TABLE bench_runs ALTER COLUMN {column} TYPE BIGINT"))


def _tuning_history(connection: Connection) -> None:
    """Nothing was ever written into step 3's tables, which are made anew."""
    for name in ("tuning_records", "workloads"):
        connection.execute(text(f"DROP TABLE {name}"))
    _create(connection, "workloads", "tuning_records", "tuning_sessions", "tuning_progress")


STEPS: tuple[Step, ...] = (
    Step(1, "benchmark runs, and what they were of", _first_tables),
    Step(2, "what regions cost in libraries and in TVM", _region_costs),
    Step(3, "tuning workloads and records", _tuning),
    Step(4, "memory above 2 GiB", _large_peaks),
    Step(5, "searches for faster kernels, and all that they measured", _tuning_history),
)

NEWEST = STEPS[-1].to


def _create(connection: Connection, *names: str) -> None:
    metadata.create_all(connection, [metadata.tables[name] for name in names])


def version_of(connection: Connection) -> int:
    """0 for a database that holds nothing yet."""
    if not inspect(connection).has_table(versions.name):
        return 0
    found = connection.execute(versions.select()).scalar()
    return 0 if found is None else int(found)


def refuse_strangers(connection: Connection, where: str) -> None:
    """A database with other tables and none of ours is somebody else's."""
    names = set(inspect(connection).get_table_names())
    if names and versions.name not in names:
        raise StoreError(
            f"{where} is a database of something else: it holds {', '.join(sorted(names)[:3])}",
            hint="name a database of its own for edgekit's measurements",
        )


def migrate(connection: Connection, to: int = NEWEST) -> tuple[Step, ...]:
    """Inside a transaction that holds the lock: bring the store to a version, say how."""
    at = version_of(connection)
    if at > NEWEST:
        raise StoreError(
            f"the store is of version {at}, and this edgekit knows versions up to {NEWEST}",
            hint="upgrade edgekit on this machine; a newer one has used the store",
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
