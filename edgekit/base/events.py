"""Events that the library sends to its caller while it works. It never prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class StageStarted:
    title: str
    total: int | None


@dataclass(frozen=True)
class StageProgress:
    title: str
    done: int
    total: int | None
    detail: str


@dataclass(frozen=True)
class StageEnded:
    title: str
    seconds: float
    result: str
    failed: bool


@dataclass(frozen=True)
class Note:
    """A message for --verbose."""

    text: str


@dataclass(frozen=True)
class Warned:
    """A message that is always shown."""

    text: str


Event = StageStarted | StageProgress | StageEnded | Note | Warned


INTERRUPTED = "interrupted"
"""The result of a failed stage that its user ended."""


class Stage:
    """A piece of work under way, for the code that does it."""

    def __init__(self, send: Callable[[Event], None], title: str, total: int | None) -> None:
        self._send = send
        self._title = title
        self._total = total
        self._done = 0
        self.result = ""

    def advance(self, steps: int = 1, detail: str = "") -> None:
        self._done += steps
        self._send(StageProgress(self._title, self._done, self._total, detail))


class Events:
    """The one interface between the library and whatever shows its progress."""

    def __init__(self, listener: Callable[[Event], None]) -> None:
        self._send = listener

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Stage]:
        """Announce a piece of work. Set `.result` on the stage to describe its outcome."""
        self._send(StageStarted(title, total))
        stage = Stage(self._send, title, total)
        started = time.perf_counter()
        failed = True
        try:
            yield stage
            failed = False
        except KeyboardInterrupt:
            stage.result = INTERRUPTED
            raise
        finally:
            seconds = time.perf_counter() - started
            self._send(StageEnded(title, seconds, stage.result, failed))

    def send(self, event: Event) -> None:
        """Pass on an event that another process reported."""
        self._send(event)

    def note(self, text: str) -> None:
        self._send(Note(text))

    def warn(self, text: str) -> None:
        self._send(Warned(text))


SILENT = Events(lambda event: None)
