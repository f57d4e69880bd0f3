"""Reports of boards that follow a channel: what a board says, and the file that keeps it.

Anyone who reaches the collector may claim anything. So a report is small, read strictly, and a
board has one row for each channel, whatever it sends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from edgekit.base.decode import Check, Count, Most, Sha256
from edgekit.base.errors import StorageError
from edgekit.base.files import storage_errors
from edgekit.base.paths import data_dir
from edgekit.registry.address import Address

MOST_BOARDS = 2_000_000
"""The most rows of a file: a board more is refused."""
_BUSY_SECONDS = 10.0
_HINT = "check the disk, and that the file was written by `edgekit rollout collect`"
_TABLE = """\
CREATE TABLE IF NOT EXISTS reports (
    name TEXT NOT NULL, channel TEXT NOT NULL, board TEXT NOT NULL,
    manifest TEXT NOT NULL, counter INTEGER NOT NULL, outcome TEXT NOT NULL,
    verified INTEGER NOT NULL, nanoseconds INTEGER, error TEXT NOT NULL,
    PRIMARY KEY (name, channel, board)
) WITHOUT ROWID
"""
_WRITE = "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ = (
    "SELECT board, manifest, counter, outcome, verified, nanoseconds, error FROM reports "
    "WHERE name = ? AND channel = ?"
)

_Printable = Check("printable text", str.isprintable)


@dataclass(frozen=True)
class BoardReport:
    """What a board says about the version that a rollout gave it."""

    name: Annotated[str, Most(300), _Printable]
    """The repository's name."""
    channel: Annotated[str, Most(64), _Printable]
    board: Annotated[str, Most(253), _Printable, Check("a name", bool)]
    manifest: Sha256
    counter: Count
    """The number of the rollout's document that the board acted on."""
    outcome: Literal["updated", "failed"]
    verified: bool
    """Whether the reference vectors gave what was expected."""
    nanoseconds: Count | None = None
    """The time of an inference with the reference input."""
    error: Annotated[str, Most(1000), _Printable] = ""


class FullError(Exception):
    """A report of a new board, when the file holds as many as it may."""


def default_file() -> Path:
    return data_dir() / "registry" / "reports.sqlite"


class ReportWriter:
    """The one process that keeps reports in a file."""

    def __init__(self, file: Path, most: int = MOST_BOARDS) -> None:
        self._most = most
        with storage_errors("keep reports", file):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(mode=0o600)
        with _typed(file):
            self._connection = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(_TABLE)
            self._boards = self._one("SELECT count(*) FROM reports", ())

    def keep(self, report: BoardReport) -> None:
        """Keep a report in place of an earlier one of the same board; sqlite3.Error if it fails."""
        place = (report.name, report.channel, report.board)
        asked = "SELECT count(*) FROM reports WHERE name = ? AND channel = ? AND board = ?"
        is_new = not self._one(asked, place)
        if is_new and self._boards >= self._most:
            raise FullError
        self._connection.execute(
            _WRITE,
            (
                *place,
                *(report.manifest, report.counter, report.outcome, report.verified),
                *(report.nanoseconds, report.error),
            ),
        )
        self._boards += is_new

    def close(self) -> None:
        self._connection.close()

    def _one(self, query: str, words: tuple[str, ...]) -> int:
        return int(self._connection.execute(query, words).fetchone()[0])


def read_reports(file: Path, place: Address) -> Iterator[BoardReport]:
    """Yield the latest report of each board of a rollout's channel; none without a file."""
    if not file.exists():
        return
    name, channel = place.name, place.tag.removeprefix("rollout-")
    with (
        _typed(file),
        closing(sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA query_only=ON")
        rows = connection.execute(_READ, (name, channel))
        for board, manifest, counter, outcome, verified, *rest in rows:
            yield BoardReport(
                name, channel, board, manifest, counter, outcome, bool(verified), *rest
            )


@contextmanager
def _typed(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"the reports in {file} can't be used: {error}", hint=_HINT) from error
