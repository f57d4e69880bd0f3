"""The lock of a serial line or a labgrid place, shared by users and a farm's checks.

The user of a line holds its lock. Now and then a farm takes it for a moment to check that the line
is free and its board answers, and marks that as a check with a second lock. A process that wants
the line waits for the end of a check, however long a busy machine takes, but only a moment for a
user.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.base.files import exclusive_lock, try_lock

PATIENCE = 3.0
"""Seconds to wait for a user of the line, who may be about to release it."""
MOST_FOR_LOOKS = 60.0
"""Seconds to wait for checks; a check that hangs then counts as a user."""
_SECONDS_BETWEEN_TRIES = 0.1


@contextmanager
def line_lock(
    path: Path, patience: float = PATIENCE, *, looking: bool = False
) -> Iterator[int | None]:
    """Hold the lock; None if it is in use. `looking` marks a check, which never waits."""
    if not looking:
        lock = _lock_of_user(path, patience)
        try:
            yield lock
        finally:
            if lock is not None:
                os.close(lock)
        return
    with exclusive_lock(_look(path)):
        lock = try_lock(path)
        try:
            yield lock
        finally:
            if lock is not None:
                os.close(lock)


def _lock_of_user(path: Path, patience: float) -> int | None:
    began = time.monotonic()
    ends_at = began + patience
    while (lock := try_lock(path)) is None:
        now = time.monotonic()
        if now < began + MOST_FOR_LOOKS and _is_looked_at(path):
            ends_at = now + patience
        elif now >= ends_at:
            return None
        time.sleep(_SECONDS_BETWEEN_TRIES)
    return lock


def _is_looked_at(path: Path) -> bool:
    look = try_lock(_look(path))
    if look is None:
        return True
    os.close(look)
    return False


def _look(path: Path) -> Path:
    return path.with_suffix(".look")
