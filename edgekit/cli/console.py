"""The console: results on stdout, progress and errors on stderr.

Colours and the live display appear on terminals only, and never with `NO_COLOR`, `--no-color`
or `TERM=dumb`.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from edgekit.base.errors import EdgekitError, ErrorReport
from edgekit.base.events import Event, Events
from edgekit.base.json_text import json_line, json_text
from edgekit.base.wording import counted, printable, width
from edgekit.cli.progress import LiveProgress, PlainProgress, Progress, QuietProgress, write_line
from edgekit.cli.table import GAP, KEPT_SPACE, Table, left_out_note, wrapped

if TYPE_CHECKING:
    from edgekit.api.workspace import Workspace

_MOST_ROWS, _FEW = 20, 5
"""The rows of a long table that are shown, and how few more make it no longer than it is worth."""
_BOLD, _RED, _CYAN, _RESET = "\x1b[1m", "\x1b[1;31m", "\x1b[36m", "\x1b[0m"


@dataclass(frozen=True)
class ErrorDocument:
    error: ErrorReport


@dataclass(kw_only=True, eq=False)
class Console:
    """Prints everything. Flags may be set until the first output."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    color: bool = True
    debug: bool = False
    csv_path: Path | None = None
    """The file for the table that `listing` shows."""
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    _progress: Progress | None = field(default=None, init=False)
    _document_written: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.events = Events(self._show)

    @cached_property
    def workspace(self) -> Workspace:
        """The workspace of this run: the current folder's."""
        from edgekit.api.workspace import Workspace

        return Workspace("", events=self.events)

    def report(self, document: object, render: Callable[[], None]) -> None:
        """Print a command's result: the document with --json, otherwise what `render` prints."""
        if self.as_json:
            self.json(document)
        else:
            render()

    def json(self, document: object) -> None:
        """Print the run's only JSON document on stdout."""
        if self._document_written:
            raise RuntimeError("a second JSON document was about to be printed")
        text = json_text(document)
        self._document_written = True  # even if Ctrl-C leaves half of it: no second one follows
        write_line(self.stdout, text)

    def json_line(self, document: object) -> None:
        """Print one of many JSON documents on stdout, one per line, for endless commands."""
        self._document_written = True
        write_line(self.stdout, json_line(document))

    def print(self, text: str = "") -> None:
        """Print a line of a result on stdout."""
        write_line(self.stdout, printable(text))

    def heading(self, text: str) -> None:
        write_line(self.stdout, self._styled(printable(text), _BOLD, self.stdout))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Print aligned columns on stdout; those named in `right` hold numbers.

        On a terminal, text is wrapped to fit, and columns are left out if that is not enough,
        those in `spare` first. In a pipe a row is always one line, and nothing is left out.
        """
        table = Table(columns, [[_cell(value) for value in row] for row in rows], right, spare)
        header, lines, left_out = table.lines(self._room())
        for line in header:
            write_line(self.stdout, self._styled(line, _BOLD, self.stdout))
        for line in lines:
            write_line(self.stdout, line)
        if left_out:
            write_line(self.stdout, left_out_note(left_out))

    def listing(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Print a table that may be long: its beginning, and how to see the rest.

        With --csv the whole of it is written to that file.
        """
        rows = list(rows)
        shown = rows if len(rows) <= _MOST_ROWS + _FEW else rows[:_MOST_ROWS]
        self.table(columns, shown, right=right, spare=spare)
        if len(shown) < len(rows) and self.csv_path is None:
            self.print(f"and {len(rows) - len(shown):,} more: --csv FILE writes all {len(rows):,}")
        self.csv(columns, rows)

    def csv(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a whole list to the file of --csv, if that is given."""
        if self.csv_path is None:
            return
        from edgekit.base.files import storage_errors, write_atomically
        from edgekit.base.quoting import csv_text

        whole = [[_cell(value).replace(KEPT_SPACE, " ") for value in row] for row in rows]
        with storage_errors("write the list", self.csv_path):
            write_atomically(self.csv_path, csv_text([columns, *whole]))
        self.print(f"wrote {counted(len(whole), 'row')} to {self.csv_path}")

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values on stdout, one pair per line; long values wrap on a terminal.

        A value of None has no line.
        """
        cells = [(name, _cell(value)) for name, value in pairs if value is not None]
        left = max((width(name) for name, _ in cells), default=0) + len(GAP)
        room = self._room()
        for name, value in cells:
            label = f"{name}{' ' * (left - width(name))}"
            lines = [value] if room is None else wrapped(value, room - left, break_words=False)
            for line in lines:
                write_line(self.stdout, f"{label}{line}".rstrip().replace(KEPT_SPACE, " "))
                label = " " * left

    def traceback(self, cause: BaseException) -> None:
        """Print an error's traceback on stderr."""
        self.close()
        write_line(self.stderr, printable("".join(traceback.format_exception(cause))).rstrip())

    def error(self, error: EdgekitError, exit_code: int | None = None) -> None:
        """Print an error, its details and its hint; with --json also as a document."""
        self.close()
        stream = self.stderr
        label = self._styled("error:", _RED, stream)
        write_line(stream, f"{label} {printable(error.message)}")
        for line in error.details:
            write_line(stream, textwrap.indent(printable(line), "  "))
        if error.hint:
            write_line(stream, f"{self._styled('hint:', _CYAN, stream)} {printable(error.hint)}")
        if self.as_json and not self._document_written:
            self.json(ErrorDocument(error.report(exit_code)))

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _show(self, event: Event) -> None:
        if self._progress is None:
            self._progress = self._choose_progress()
        self._progress.show(event)

    def _choose_progress(self) -> Progress:
        if self.quiet:
            return QuietProgress(self.stderr)
        if self._is_fancy(self.stderr) and not self.as_json:
            return LiveProgress(self.stderr, verbose=self.verbose)
        return PlainProgress(self.stderr, verbose=self.verbose)

    def _is_fancy(self, stream: TextIO) -> bool:
        return (
            self.color
            and stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "dumb") != "dumb"
            and (stream.encoding or "").lower().replace("-", "") == "utf8"
        )

    def _styled(self, text: str, style: str, stream: TextIO) -> str:
        return f"{style}{text}{_RESET}" if self._is_fancy(stream) else text

    def _room(self) -> int | None:
        """Return the columns of the terminal that shows results, or None if none does."""
        return shutil.get_terminal_size().columns if self.stdout.isatty() else None


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = printable(str(value)).replace("\n", " ").replace("\t", " ")
    return text.replace(" ", KEPT_SPACE) if isinstance(value, Path) else text
