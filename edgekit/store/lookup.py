"""Earlier measurements for builds, looked up in milliseconds.

An SQLite file is read without SQLAlchemy. If the store can't be used, a warning says so and the
build goes on without it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.store.address import default_url, findings_folder, is_off, sqlite_file, waiting
from edgekit.store.queries import (
    BEST_OF,
    REGION_COSTS,
    VERSION,
    best_from_row,
    cost_from_row,
    hash_of,
)
from edgekit.store.runs import RegionCost
from edgekit.store.tuning_runs import BestRecord

_Rows = Sequence[Sequence[Any]]

_BUSY_SECONDS = 5.0
_FORGET_AFTER = 60.0
_problems: dict[str, tuple[float, str]] = {}
"""The last failure of each store, so that one command does not wait for it twice."""
_told: set[str] = set()
"""The stores whose last failure was a warning, so that one command does not warn twice."""


def best_records(
    target: str, version: int, url: str | None = None, events: Events = SILENT
) -> dict[str, BestRecord]:
    """Look up the best record of each kernel on a target, by the kernel's key."""
    rows = _query(BEST_OF, {"target": hash_of(target), "version": version}, url, events)
    return {row[0]: best_from_row(row) for row in rows}


def region_costs(
    board: str, url: str | None = None, events: Events = SILENT
) -> tuple[RegionCost, ...]:
    """Look up the cost of every region that was measured on a board."""
    return tuple(cost_from_row(row) for row in _query(REGION_COSTS, {"board": board}, url, events))


def deliver_waiting(url: str | None = None, events: Events = SILENT) -> None:
    """Deliver waiting findings to the store; if that fails, warn and leave them in place."""
    from edgekit.store.database import close_store, open_store
    from edgekit.store.outbox import deliver_findings

    url = url or default_url()
    folder = findings_folder(url)
    if is_off(url) or not waiting(folder):
        return
    try:
        store = open_store(url, patient=False)
        try:
            deliver_findings(store, folder)
        finally:
            close_store(store)
    except EdgekitError as error:
        events.warn(f"measurements wait in {folder}: {error.message}")


def _query(sql: str, given: Mapping[str, object], url: str | None, events: Events) -> _Rows:
    url = url or default_url()
    if is_off(url):
        return ()
    moment, problem = _problems.get(url, (0.0, ""))
    if not problem or time.monotonic() - moment > _FORGET_AFTER:
        try:
            rows = _rows(sql, given, url)
        except EdgekitError as error:
            problem = f"{error.message}; {error.hint}" if error.hint else error.message
            _problems[url] = (time.monotonic(), problem)
            _told.discard(url)
        else:
            _problems.pop(url, None)
            return rows
    if events is not SILENT and url not in _told:
        events.warn(f"no earlier measurement is used: {problem}")
        _told.add(url)
    return ()


def _rows(sql: str, given: Mapping[str, object], url: str) -> _Rows:
    file = sqlite_file(url)
    if file is not None and not waiting(findings_folder(url)):
        if not file.exists():
            return ()
        with contextlib.suppress(sqlite3.Error):  # _rows_of_store reports the problem
            rows = _rows_of_file(sql, given, file)
            if rows is not None:
                return rows
    return _rows_of_store(sql, given, url)


def _rows_of_file(sql: str, given: Mapping[str, object], file: Path) -> _Rows | None:
    """Query an SQLite file; return None if its version is not the newest."""
    connecting = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    with contextlib.closing(connecting) as connection:
        (version,) = connection.execute("SELECT version FROM edgekit_store").fetchone()
        return connection.execute(sql, dict(given)).fetchall() if version == VERSION else None


def _rows_of_store(sql: str, given: Mapping[str, object], url: str) -> _Rows:
    from sqlalchemy import text

    from edgekit.store.database import close_store, open_store, read
    from edgekit.store.outbox import deliver_findings

    store = open_store(url, patient=False)
    try:
        deliver_findings(store, findings_folder(url))
        return read(store, lambda connection: connection.execute(text(sql), given).all())
    finally:
        close_store(store)
