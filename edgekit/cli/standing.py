"""Says how far a stage is: its share and what remains, from its steps or from the time before."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.errors import StorageError
from edgekit.base.events import StageEnded, StageProgress, StageStarted
from edgekit.base.files import write_atomically
from edgekit.base.paths import cache_dir
from edgekit.base.wording import duration

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
