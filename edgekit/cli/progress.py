"""Displays of the library's events: lines in a log, or a live display on a terminal."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from edgekit.base.errors import StorageError
from edgekit.base.events import (
    INTERRUPTED,
    Event,
    Note,
    StageEnded,
    StageProgress,
    StageStarted,
    Warned,
)
from edgekit.base.files import write_atomically
from edgekit.base.paths import cache_dir
from edgekit.base.wording import duration, printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


WORTH_A_LINE = 1.0
"""The shortest stage in seconds that a log shows without --verbose."""

HEARTBEAT = 10.0
"""Seconds before the first line about a running stage in a log."""


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


class PlainProgress:
    """Prints a line for each finished long stage, and now and then one for a running stage."""

    def __init__(
        self, stream: TextIO, *, verbose: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._verbose = verbose
        self._clock = clock
        self._stages = Standings(clock)
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None

    def show(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, StageStarted):
                self._stages.begin(event)
                self._start_watch()
            elif isinstance(event, StageProgress):
                self._stages.advance(event)
                self.tick()
            elif isinstance(event, StageEnded):
                self._stages.end(event)
                if event.seconds >= WORTH_A_LINE or self._verbose:
                    self._line(finished(event))
            elif isinstance(event, Warned):
                self._line(f"warning: {event.text}")
            elif self._verbose:
                self._line(event.text)

    def close(self) -> None:
        self._ended.set()
        self._stages.open.clear()

    def tick(self) -> None:
        """Print a line about the innermost stage if it was silent for long."""
        if not self._stages.open:
            return
        stage, now = self._stages.open[-1], self._clock()
        if stage.is_complete:
            return  # its last line comes next
        # Twice as long after each line: an hour takes nine lines.
        if now - stage.last_line < HEARTBEAT * 2**stage.lines:
            return
        stage.last_line, stage.lines = now, stage.lines + 1
        said = stage.in_words(now) or f"{duration(round(now - stage.started))} so far"
        self._line(f"{stage.title}: {said}{'; ' if stage.detail else ''}{stage.detail}")

    def _start_watch(self) -> None:
        """Start the thread that prints about stages that report nothing themselves."""
        if self._watch is None:
            self._watch = threading.Thread(target=self._tick_until_closed, daemon=True)
            self._watch.start()

    def _tick_until_closed(self) -> None:
        while not self._ended.wait(1.0):
            # What keeps a line from being written is told by the next line of the main thread.
            with suppress(OSError, StorageError), self._lock:
                self.tick()

    def _line(self, text: str) -> None:
        write_line(self._stream, printable(text))


class LiveProgress:
    """Shows a spinner or bar for each running stage and a line for each finished one."""

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._stream = stream
        self._verbose = verbose
        self._display: RichProgress | None = None
        self._stages = Standings(time.monotonic)
        self._tasks: list[tuple[Standing, TaskID]] = []

    def show(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            stage = self._stages.begin(event)
            task = self._running().add_task(
                printable(event.title), total=event.total, detail="", stage=stage
            )
            self._tasks.append((stage, task))
        elif isinstance(event, StageProgress):
            advanced = self._stages.advance(event)
            for stage, task in self._tasks:
                if stage is advanced:
                    detail = printable(event.detail)
                    self._running().update(
                        task, total=event.total, completed=event.done, detail=detail
                    )
        elif isinstance(event, StageEnded):
            self._end(event)
        elif isinstance(event, Warned):
            self._line("!", "yellow", f"warning: {event.text}")
        elif isinstance(event, Note) and self._verbose:
            self._line(" ", "", event.text)

    def close(self) -> None:
        self._stages.open.clear()
        self._tasks.clear()
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _end(self, event: StageEnded) -> None:
        ended = self._stages.end(event)
        for entry in self._tasks:
            if entry[0] is ended:
                self._running().remove_task(entry[1])
                self._running().refresh()  # otherwise the line below is drawn with the old bar
                self._tasks.remove(entry)
                break
        mark, style = ("✗", "red") if event.failed else ("✓", "green")
        self._line(mark, style, finished(event))
        if not self._tasks:
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
                ProgressColumn,
                SpinnerColumn,
                Task,
                TextColumn,
                TimeElapsedColumn,
            )
            from rich.table import Column
            from rich.text import Text

            class StandingColumn(ProgressColumn):
                def render(self, task: Task) -> Text:
                    return Text(task.fields["stage"].in_words(time.monotonic()), no_wrap=True)

            self._display = Progress(
                SpinnerColumn(),
                TimeElapsedColumn(),
                BarColumn(bar_width=12),
                StandingColumn(),
                TextColumn(
                    "{task.description}  {task.fields[detail]}",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
                ),
                console=Console(file=self._stream, force_terminal=True),
                transient=True,
                expand=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._display.start()
        return self._display


_WORTH_TELLING = 0.05
"""The share of a stage's time from which a part of it is named."""


def finished(event: StageEnded) -> str:
    if event.failed:
        how = "stopped" if event.result == INTERRUPTED else "failed"
        return f"{event.title}: {how} after {duration(event.seconds)}"
    result = f": {event.result}" if event.result else ""
    parts = ", ".join(
        f"{name} {duration(seconds)}"
        for name, seconds in event.parts.items()
        if seconds >= _WORTH_TELLING * event.seconds
    )
    return f"{event.title}{result} ({duration(event.seconds)}{parts and f': {parts}'})"


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


LONG = 2.0
"""The shortest stage in seconds that is worth remembering, and an estimate."""
_MOST_REMEMBERED = 300
_LONGEST_FILE = 100_000


@dataclass
class Standing:
    """A stage under way."""

    title: str
    total: int | None
    started: float
    before: float | None = None
    """The seconds that a stage of this title took the last time."""
    done: int = 0
    detail: str = ""
    last_line: float = 0.0
    lines: int = 0

    @property
    def is_complete(self) -> bool:
        return bool(self.total) and self.done >= (self.total or 0)

    def in_words(self, now: float) -> str:
        """Return the share and what remains, as far as they are known: 42 %, about 12 s left."""
        elapsed = now - self.started
        words = []
        left = None
        if self.total:
            share = min(self.done / self.total, 1.0)
            words.append(f"{int(100 * share)} %")
            if share > 0 and elapsed >= LONG:
                left = elapsed * (1 - share) / share
        if not self.done and self.before is not None:
            left = self.before - elapsed
        if left is not None and left >= 1:
            words.append(f"about {duration(round(left))} left")
        return ", ".join(words)


@dataclass
class Standings:
    """The stages under way, the innermost last, and how long those before them took."""

    clock: Callable[[], float]
    file: Path = field(default_factory=lambda: cache_dir() / "durations.json")
    open: list[Standing] = field(default_factory=list)
    _before: dict[str, float] | None = None

    def begin(self, event: StageStarted) -> Standing:
        now = self.clock()
        before = self._remembered().get(event.title)
        self.open.append(Standing(event.title, event.total, now, before, last_line=now))
        return self.open[-1]

    def advance(self, event: StageProgress) -> Standing | None:
        stage = self._find(event.title)
        if stage is not None:
            stage.done, stage.total, stage.detail = event.done, event.total, event.detail
        return stage

    def end(self, event: StageEnded) -> Standing | None:
        stage = self._find(event.title)
        if stage is not None:
            self.open.remove(stage)
            if not event.failed and event.seconds >= LONG:
                self._remember(event.title, event.seconds)
        return stage

    def _find(self, title: str) -> Standing | None:
        return next((stage for stage in reversed(self.open) if stage.title == title), None)

    def _remembered(self) -> dict[str, float]:
        if self._before is None:
            self._before = {}
            # Estimates are a courtesy: a file that is missing, damaged or too large has none.
            with suppress(OSError, ValueError):
                if self.file.stat().st_size <= _LONGEST_FILE:
                    read = json.loads(self.file.read_bytes())
                    self._before = {
                        str(title): float(seconds)
                        for title, seconds in (read.items() if isinstance(read, dict) else ())
                        if isinstance(seconds, (int, float)) and 0 < seconds < 1e6
                    }
        return self._before

    def _remember(self, title: str, seconds: float) -> None:
        known = self._remembered()
        known.pop(title, None)
        known[title] = round(seconds, 1)
        latest = dict(list(known.items())[-_MOST_REMEMBERED:])
        with suppress(OSError, StorageError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, json.dumps(latest))
