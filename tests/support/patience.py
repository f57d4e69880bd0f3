"""Time limits for tests of what has no end: long enough for a busy machine to come so far."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.base.errors import EdgekitError

LIMITS_S = (5, 15, 60, 240)


def stopped_at(phase: str, attempt: Callable[[int], EdgekitError]) -> tuple[EdgekitError, int]:
    """Give the error of the first time limit under which `attempt` came as far as `phase`, and that
    limit. A busy machine may be stopped before."""
    for seconds in LIMITS_S:
        error = attempt(seconds)
        if phase in error.message:
            break
    return error, seconds
