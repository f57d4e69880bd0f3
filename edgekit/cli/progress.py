"""Displays of the library's events: lines in a log, or a live display on a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from edgekit.base.errors import StorageError
from edgekit.base.events import Event, Note, StageEnded, StageProgress, StageStarted, Warned
from edgekit.base.wording import duration, printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

WORTH_A_LINE = 1.0
"""The shortest stage in seconds that a log shows without --verbose."""

HEARTBEAT = 10.0
"""Seconds between two lines about the same stage in a log."""


class Progress(Protocol):
    def show(self, event: Event) -> None: ...

    def close(self) -> None:
        """Restore the terminal before an error is printed."""


class QuietProgress:
    """Shows warnings only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, event: Event) -> None:
        if isinstance(event, Warned):
            write_line(self._stream, f"warning: {printable(event.text)}")

    def close(self) -> None:
        pass


@dataclass
class _OpenStage:
    title: str
    last_line: float


class PlainProgress:
    """Prints a line for each finished long stage, and now and then one for a running stage."""

    def __init__(
        self, stream: TextIO, *, verbose: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._verbose = verbose
        self._clock = clock
        self._open: list[_OpenStage] = []

    def show(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            self._open.append(_OpenStage(event.title, self._clock()))
        elif isinstance(event, StageProgress):
            self._progress(event)
        elif isinstance(event, StageEnded):
            self._end(event)
        elif isinstance(event, Warned):
            self._line(f"warning: {event.text}")
        elif self._verbose:
            self._line(event.text)

    def close(self) -> None:
        self._open.clear()

    def _progress(self, event: StageProgress) -> None:
        stage = next((s for s in reversed(self._open) if s.title == event.title), None)
        if stage is None or self._clock() - stage.last_line < HEARTBEAT:
            return
        stage.last_line = self._clock()
        total = f"/{event.total}" if event.total is not None else ""
        detail = f" {event.detail}" if event.detail else ""
        self._line(f"{event.title}: {event.done}{total}{detail}")

    def _end(self, event: StageEnded) -> None:
        for stage in reversed(self._open):
            if stage.title == event.title:
                self._open.remove(stage)
                break
        if event.seconds >= WORTH_A_LINE or self._verbose:
            self._line(finished(event))

    def _line(self, text: str) -> None:
        write_line(self._stream, printable(text))


class LiveProgress:
    """Shows a spinner or bar for each running stage and a line for each finished one."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._stream = stream
        self._verbose = verbose
        self._display: RichProgress | None = None
        self._open: list[tuple[str, TaskID]] = []

    def show(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            task = self._running().add_task(printable(event.title), total=event.total, detail="")
            self._open.append((event.title, task))
        elif isinstance(event, StageProgress):
            for title, task in reversed(self._open):
                if title == event.title:
                    self._running().update(
                        task, completed=event.done, detail=printable(event.detail)
                    )
                    break
        elif isinstance(event, StageEnded):
            self._end(event)
        elif isinstance(event, Warned):
            self._line("!", "yellow", f"warning: {event.text}")
        elif isinstance(event, Note) and self._verbose:
            self._line(" ", "", event.text)

    def close(self) -> None:
        self._open.clear()
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _end(self, event: StageEnded) -> None:
        for entry in reversed(self._open):
            if entry[0] == event.title:
                self._running().remove_task(entry[1])
                self._running().refresh()  # otherwise the line below is drawn with the old bar
                self._open.remove(entry)
                break
        mark, style = ("✗", "red") if event.failed else ("✓", "green")
        self._line(mark, style, finished(event))
        if not self._open:
            self.close()

    def _line(self, mark: str, style: str, text: str) -> None:
        if self._display is None:
            write_line(self._stream, f"{mark} {printable(text)}")
            return
        from rich.text import Text

        line = Text.assemble((f"{mark} ", style), printable(text))
        self._display.console.print(line, soft_wrap=True)

    def _running(self) -> RichProgress:
        if self._display is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )
            from rich.table import Column

            self._display = Progress(
                SpinnerColumn(),
                TimeElapsedColumn(),
                BarColumn(bar_width=20),
                TextColumn(
                    "{task.description}  {task.fields[detail]}",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis"),
                ),
                console=Console(file=self._stream, force_terminal=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._display.start()
        return self._display


def finished(event: StageEnded) -> str:
    if event.failed:
        return f"{event.title}: failed after {duration(event.seconds)}"
    result = f": {event.result}" if event.result else ""
    return f"{event.title}{result} ({duration(event.seconds)})"


def write_line(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        raise  # the reader is gone, which is no error
    except OSError as error:
        raise StorageError(
            f"could not write the output: {os.strerror(error.errno or 0).lower()}",
            hint="free some space where it goes, or send it elsewhere",
        ) from error
