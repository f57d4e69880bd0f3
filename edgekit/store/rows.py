"""Rows that may be written twice without harm (ON CONFLICT), and rows found by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from edgekit.base.errors import UsageError

T = TypeVar("T")

_SHORTEST_PREFIX = 4


@dataclass(frozen=True)
class Named:
    """The words of errors about things that are named by an id."""

    noun: str
    listed_by: str
    """The command that lists their ids."""
    made_by: str
    """The command that makes one."""


def insert_missing(connection: Connection, table: Table, values: Mapping[str, object]) -> int:
    """Insert a row unless its key is taken. Return the number of new rows."""
    statement = _inserting(connection)(table).values(**values).on_conflict_do_nothing()
    (key, *_) = table.primary_key.columns
    return len(connection.execute(statement.returning(key)).all())


def insert_or_update(
    connection: Connection,
    table: Table,
    values: Mapping[str, object],
    *,
    newer_by: str,
    final_by: str | None = None,
) -> None:
    """Insert a row, or replace the row with its primary key unless that one is newer.

    A row with a value in `final_by` is final: it replaces any, and only another final one replaces
    it. Its time may lie before that of a heartbeat which another thread wrote meanwhile.
    """
    statement = _inserting(connection)(table).values(**values)
    keys = [column.name for column in table.primary_key.columns]
    others = {name: statement.excluded[name] for name in values if name not in keys}
    is_newer: ColumnElement[bool] = statement.excluded[newer_by] >= table.c[newer_by]
    wins = is_newer
    if final_by is not None:
        is_final = statement.excluded[final_by].is_not(None)
        wins = is_final | (table.c[final_by].is_(None) & is_newer)
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=others, where=wins)
    )


def id_of(
    connection: Connection,
    table: Table,
    key: Mapping[str, object],
    others: Mapping[str, object],
) -> int:
    """Return the id of the row with that key; insert the row if it is missing."""
    insert_missing(connection, table, {**key, **others})
    query = select(table.c.id)
    for name, value in key.items():
        query = query.where(table.c[name] == value)
    return int(connection.execute(query).scalar_one())


def select_named(
    query: Select[Any], ids: Column[str], times: Column[str], name: str
) -> Select[Any] | None:
    """Narrow a query to the latest row, or to ids that begin with a name.

    Return None if the name is neither `latest` nor the beginning of an id.
    """
    if name == "latest":
        return query.order_by(times.desc()).limit(1)
    if len(name) < _SHORTEST_PREFIX or any(c not in "0123456789abcdef" for c in name.lower()):
        return None
    return query.where(ids.startswith(name.lower(), autoescape=True)).limit(2)


def only_one(found: Sequence[T], name: str, named: Named) -> T:
    """Return the only result of `select_named`; raise UsageError for none or several."""
    if len(found) > 1:
        raise UsageError(f"several {named.noun}s begin with {name}", hint="write more of the id")
    if found:
        return found[0]
    if name == "latest":
        raise UsageError(
            f"the store holds no {named.noun} yet", hint=f"`{named.made_by}` makes one"
        )
    raise UsageError(
        f"the store holds no {named.noun} {name!r}",
        hint=f"write latest, or {_SHORTEST_PREFIX} digits or more of an id:"
        f" `{named.listed_by}` shows them",
    )


def _inserting(connection: Connection) -> type[postgresql.Insert] | type[sqlite.Insert]:
    return postgresql.Insert if connection.dialect.name == "postgresql" else sqlite.Insert
