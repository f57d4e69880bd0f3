"""Events that the library sends to its caller while it works. It never prints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from edgekit.base.errors import StorageError


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
    parts: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each named part of the work, in their order."""


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


_SECONDS_BETWEEN_LOOKS = 0.25


class Stage:
    """A piece of work under way, for the code that does it."""

    def __init__(self, send: Callable[[Event], None], title: str, total: int | None) -> None:
        self._send = send
        self._title = title
        self._total = total
        self._done = 0
        self._since = time.perf_counter()
        self.parts: dict[str, float] = {}
        self.result = ""

    def advance(self, steps: int = 1, detail: str = "") -> None:
        self._done += steps
        self._send(StageProgress(self._title, self._done, self._total, detail))

    def finish(self, part: str) -> None:
        """Advance by a part of the work, and keep how long it took."""
        now = time.perf_counter()
        self.parts[part] = now - self._since
        self._since = now
        self.advance(detail=part)

    def expect(self, total: int | None) -> None:
        """Set the number of steps, where it becomes known while the stage runs."""
        self._total = total
        self.advance(0)

    @contextmanager
    def watching(self, measure: Callable[[], int]) -> Iterator[None]:
        """Advance to what `measure` returns from time to time during the block: for tools that
        report nothing, whose files grow."""
        over = threading.Event()

        def watch() -> None:
            # What keeps a line from being written is told by the next line of the main thread.
            with suppress(StorageError):
                while not over.wait(_SECONDS_BETWEEN_LOOKS):
                    with suppress(OSError):
                        done = measure() if self._total is None else min(measure(), self._total)
                        self.advance(max(done - self._done, 0))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


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
            self._send(StageEnded(title, seconds, stage.result, failed, stage.parts))

    def keeping(self, ended: list[StageEnded]) -> Events:
        """Return events that also keep each stage that has ended in `ended`."""

        def listen(event: Event) -> None:
            if isinstance(event, StageEnded):
                ended.append(event)
            self._send(event)

        return Events(listen)

    def send(self, event: Event) -> None:
        """Pass on an event that another process reported."""
        self._send(event)

    def note(self, text: str) -> None:
        self._send(Note(text))

    def warn(self, text: str) -> None:
        self._send(Warned(text))


SILENT = Events(lambda event: None)
