"""Opening a store, and transactions that survive broken connections.

SQLite runs in WAL mode with full synchronisation: a commit is on the disk. Every row gets its id
before it is written and is inserted only if it is missing. So a transaction that lost its
connection, and may or may not have been committed, is run again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from edgekit.base.database_url import PARAMETERS, read_database_url
from edgekit.base.errors import MissingToolError, StorageError, StoreError, UsageError
from edgekit.base.options import option
from edgekit.base.paths import from_home
from edgekit.base.wording import printable
from edgekit.store.address import OFF, VARIABLE, default_url, name_of, secrets_of
from edgekit.store.migrations import NEWEST, migrate, refuse_strangers, version_of

T = TypeVar("T")

_BUSY_SECONDS = 30.0
_SECONDS_BETWEEN_TRIES = 0.02
_CONNECT_SECONDS, _BRIEF_SECONDS = 10, 3
_URLS = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"
_NETWORK = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Limits that give up a server without a network within a minute instead of hours."""
_LOCK = 0x65646765
"""The number of the PostgreSQL advisory lock under which one edgekit at a time migrates."""


@dataclass(frozen=True)
class Store:
    """A database of measurements. Connections are made when needed."""

    url: URL
    engine: Engine
    attempts: int = 4
    """How often a transaction is tried when its connection breaks."""

    def __str__(self) -> str:
        """Name the store without any secret."""
        return name_of(self._plain_url)

    def without_secrets(self, said: str) -> str:
        """Mask secrets in a text from the database's driver, which may quote its input."""
        for secret in secrets_of(self._plain_url):
            said = said.replace(secret, "***")
        return said

    @property
    def _plain_url(self) -> str:
        return self.url.render_as_string(hide_password=False)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"


def open_store(url: str | None = None, *, patient: bool = True) -> Store:
    """Open a store, make it if it is missing, and migrate it to the newest version.

    With `patient` off, a server is tried once, for a few seconds.
    """
    store = _connect(url or default_url(), patient)
    _guarded(store, lambda: _prepare(store))
    return store


def close_store(store: Store) -> None:
    """Close a store's connections."""
    store.engine.dispose()


def write(store: Store, work: Callable[[Connection], T]) -> T:
    """Run `work` in one transaction, and again from its start if the connection breaks.

    It must be harmless to run twice: ids are made beforehand, rows inserted only if missing.
    """

    def attempt() -> T:
        with _transaction(store) as connection:
            return work(connection)

    return _guarded(store, attempt)


def read(store: Store, work: Callable[[Connection], T]) -> T:
    """Run `work`, which only reads, and again if the connection breaks."""

    def attempt() -> T:
        with store.engine.connect() as connection:
            return work(connection)

    return _guarded(store, attempt)


def _connect(url: str, patient: bool) -> Store:
    if url == OFF:
        raise UsageError(
            f"{VARIABLE} is {OFF}: the store is turned off",
            hint=f"unset it, or name a store with {option('store')}",
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # an invalid port is a ValueError
        raise UsageError("the store's URL can't be read", hint=_URLS) from error
    _check_unambiguous(url, parsed)
    name, _, driver = parsed.drivername.partition("+")
    if driver not in ("", "psycopg" if name == "postgresql" else ""):
        raise UsageError(f"edgekit can't use {name} through {driver}", hint=_URLS)
    if name == "sqlite":
        if parsed.host:
            raise UsageError("an SQLite file has no host", hint="write sqlite:///FILE")
        if not parsed.database or parsed.database == ":memory:":
            raise UsageError(
                "a store in memory would be lost", hint="write sqlite:///FILE, with three slashes"
            )
        path = from_home(parsed.database).absolute()
        parsed = parsed.set(database=str(path))
        engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return Store(parsed, engine)
    if name == "postgresql":
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        _check_driver()
        engine = create_engine(
            parsed,
            pool_pre_ping=True,
            pool_size=2,
            connect_args={
                "connect_timeout": _CONNECT_SECONDS if patient else _BRIEF_SECONDS,
                "application_name": "edgekit",
                "client_encoding": "utf8",
                **_NETWORK,
            },
        )
        return Store(parsed, engine, 4 if patient else 1)
    raise UsageError(
        f"edgekit keeps measurements in SQLite or PostgreSQL, not in {name}", hint=_URLS
    )


def _check_unambiguous(url: str, parsed: URL) -> None:
    """Raise UsageError if the name in messages and the connection may be of different servers."""
    parts = read_database_url(url)
    if parts is None or parsed.drivername.startswith("sqlite"):
        return
    shown = (parts.user, parts.host.strip("[]"), parts.port, parts.database.removeprefix("/"))
    meant = (parsed.username, parsed.host, parsed.port, parsed.database)
    if [unquote(word) for word in shown] != [str(word or "") for word in meant]:
        raise UsageError(
            "the store's URL can be read in two ways",
            hint="percent-encode marks in the password: %2F for /, %3F for ?, %40 for @",
        )
    unknown = sorted(key for key in parsed.query if key not in PARAMETERS)
    if unknown:
        raise UsageError(
            f"the store's URL has the parameter {printable(unknown[0])[:80]}, which edgekit does "
            "not pass on",
            hint=f"allowed are {', '.join(sorted(PARAMETERS))}",
        )


def _check_driver() -> None:
    from importlib.util import find_spec

    if find_spec("psycopg") is None:
        raise MissingToolError(
            "a store in PostgreSQL needs the Python package psycopg",
            hint="pip install 'edgekit[postgres]'",
        )


def _configure_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions
    _log_ahead(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Turn on WAL. SQLite itself does not wait if two processes do so to a new file at once."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(_SECONDS_BETWEEN_TRIES)


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at the start: SQLite waits for it then, but not in the middle."""
    writing = connection.get_execution_options().get("edgekit_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


@contextmanager
def _transaction(store: Store) -> Iterator[Connection]:
    with (
        store.engine.connect().execution_options(edgekit_writes=True) as connection,
        connection.begin(),
    ):
        yield connection


def _prepare(store: Store) -> None:
    if store.is_sqlite:
        path = Path(str(store.url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the store's folder {path.parent} can't be made: {error.strerror}",
                hint=f"name another file with {VARIABLE}",
            ) from error
    with store.engine.connect() as connection:
        if version_of(connection) == NEWEST:
            return
    with _transaction(store) as connection:
        if not store.is_sqlite:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK:d})"))
        refuse_strangers(connection, str(store))
        migrate(connection)


def _guarded(store: Store, attempt: Callable[[], T]) -> T:
    """Try again if the connection breaks; turn every other failure into a typed error."""
    for remaining in reversed(range(store.attempts)):
        try:
            return attempt()
        except DBAPIError as error:
            if not remaining or not _is_passing(store, error):
                raise _typed(store, error) from error
            store.engine.dispose()
            time.sleep(0.2 * 2 ** (store.attempts - remaining))
        except sqlite3.Error as error:  # SQLAlchemy does not wrap errors while connecting
            raise _typed(store, error) from error
    raise AssertionError("unreachable")


def _is_passing(store: Store, error: DBAPIError) -> bool:
    """Tell whether trying again may help: a server may restart, a file will not change."""
    if store.is_sqlite:
        return False
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)


def _typed(store: Store, error: Any) -> StoreError | StorageError:
    said = store.without_secrets(_first_line(error))
    if "disk is full" in said or "readonly database" in said or "disk I/O" in said:
        return StorageError(
            f"{store} can't be written: {said}",
            hint="free some space, or check the file's permissions",
        )
    if "database is locked" in said:
        return StoreError(
            f"{store} was in use by others for {_BUSY_SECONDS:g} s",
            hint="wait until the other edgekit has ended, then try again",
        )
    if "not a database" in said or "malformed" in said:
        return StoreError(
            f"{store} is damaged or no database: {said}",
            hint="restore a copy, or move it away; the next measurement makes a new one",
        )
    return StoreError(
        f"the store {store} can't be used: {said}",
        hint="check that it exists and that you may use it, or name another in EDGEKIT_STORE",
    )


def _first_line(error: Any) -> str:
    """Return the database's message without the statement. PostgreSQL's never has a password."""
    original = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(original).splitlines() if line.strip()]
    return lines[0] if lines else type(original).__name__
