"""The results of an evaluation that is not over, so that an interrupted one goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgekit.base.events import Events
from edgekit.base.files import exclusive_lock, sha256_bytes, storage_errors
from edgekit.base.json_text import json_line
from edgekit.base.paths import cache_dir


@dataclass(frozen=True)
class Journal:
    """A file with a line for each item that was judged."""

    stream: IO[str]
    done: dict[str, dict[str, Any]]
    """What is known of items, by their identity."""

    def add(self, identity: str, known: dict[str, Any]) -> None:
        self.done[identity] = known
        self.stream.write(json.dumps([identity, known]) + "\n")
        self.stream.flush()


@contextmanager
def journal(subject: tuple[str, ...], *, again: bool, events: Events) -> Iterator[Journal]:
    """Hold the journal of a subject against other processes; it is removed if the block ends well.

    With `again`, nothing of an earlier evaluation counts.
    """
    path = cache_dir() / "evaluations" / f"{sha256_bytes(json_line(subject).encode())}.jsonl"

    def wait() -> None:
        events.note("another process evaluates the same; waiting for it")

    with storage_errors("keep results of the evaluation", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(path, wait):
            done = {} if again else _read(path)
            with path.open("w", encoding="utf-8") as stream:
                entries = Journal(stream, {})
                for identity, known in done.items():
                    entries.add(identity, known)
                yield entries
            path.unlink()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Read all whole lines; a killed process may have left a part of one."""
    done = {}
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                identity, known = json.loads(line)
                done[str(identity)] = dict(known)
            except (TypeError, ValueError):
                continue
    return done
