"""How rows are written so that writing them twice does no harm: databases' ON CONFLICT."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite


def insert_missing(connection: Connection, table: Table, values: Mapping[str, object]) -> int:
    """Gives 1, or 0 where a row of that key was there."""
    statement = _inserting(connection)(table).values(**values).on_conflict_do_nothing()
    (key, *_) = table.primary_key.columns
    return len(connection.execute(statement.returning(key)).all())


def insert_or_renew(
    connection: Connection, table: Table, values: Mapping[str, object], newer_by: str
) -> None:
    """In the place of a row of the same primary key, unless that one is newer."""
    statement = _inserting(connection)(table).values(**values)
    keys = [column.name for column in table.primary_key.columns]
    others = {name: statement.excluded[name] for name in values if name not in keys}
    is_newer: ColumnElement[bool] = statement.excluded[newer_by] >= table.c[newer_by]
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=others, where=is_newer)
    )


def id_of(
    connection: Connection,
    table: Table,
    key: Mapping[str, object],
    others: Mapping[str, object],
) -> int:
    """The number of the row with that key, which is made where there is none."""
    insert_missing(connection, table, {**key, **others})
    query = select(table.c.id)
    for name, value in key.items():
        query = query.where(table.c[name] == value)
    return int(connection.execute(query).scalar_one())


def _inserting(connection: Connection) -> type[postgresql.Insert] | type[sqlite.Insert]:
    return postgresql.Insert if connection.dialect.name == "postgresql" else sqlite.Insert
