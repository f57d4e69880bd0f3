"""What state a device of the farm is in, and what follows from what happens to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

State = Literal["starting", "free", "busy", "lost", "quarantined", "draining", "drained"]

SERVING: tuple[State, ...] = ("starting", "free", "busy", "lost", "draining")
"""States in which a worker runs, or is about to be started."""


_UP: tuple[State, ...] = ("starting", "free", "busy")


@dataclass(frozen=True)
class Limits:
    """When a device is left alone for a while, and for how long."""

    faults: int = 3
    """So many losses ..."""
    window: float = 600.0
    """... within so many seconds."""
    first_rest: float = 60.0
    longest_rest: float = 3600.0
    first_wait: float = 1.0
    """Before a lost device is tried again; doubled each time."""
    longest_wait: float = 30.0
    silence: float = 30.0
    """After so long without a sign, a worker counts as hanging and is killed."""
    overdue: float = 10.0
    """So long after its end a session that still runs counts as one of a device that hangs."""


@dataclass(frozen=True)
class Health:
    state: State = "starting"
    since: float = 0.0
    reason: str = ""
    """Why it is not to be had; empty where it is."""
    faults: tuple[float, ...] = ()
    """When it was lost, within the window."""
    tries: int = 0
    """Failed starts in a row."""
    rests: int = 0
    """Quarantines in a row."""
    again_at: float | None = None
    """When it is tried next, by itself."""
    sessions: int = 0
    """That it served since the farm is up."""

    @property
    def wants_worker(self) -> bool:
        return self.state in SERVING and self.again_at is None


def came_up(health: Health, now: float) -> Health:
    if health.state in ("draining", "drained", "quarantined"):
        return health
    return replace(health, state="free", since=now, reason="", tries=0, again_at=None)


def was_taken(health: Health, now: float) -> Health:
    if health.state not in _UP:
        return health
    return replace(health, state="busy", since=now, reason="", sessions=health.sessions + 1)


def was_given_back(health: Health, now: float) -> Health:
    if health.state == "draining":
        return replace(health, state="drained", since=now)
    if health.state not in _UP:
        return health
    return replace(health, state="free", since=now, reason="")


def was_lost(health: Health, reason: str, now: float, limits: Limits) -> Health:
    """A worker has ended. Repeated faults bring quarantine, for longer each time."""
    if health.state == "drained":
        return health
    if health.state == "draining":
        return replace(health, state="drained", since=now)
    faults = (*_recent(health.faults, now, limits), now)
    if len(faults) >= limits.faults:
        rest = min(limits.first_rest * 2**health.rests, limits.longest_rest)
        return replace(
            health,
            state="quarantined",
            since=now,
            reason=f"lost {len(faults)} times within {limits.window:g} s, the last time: {reason}",
            faults=faults,
            rests=health.rests + 1,
            again_at=now + rest,
        )
    wait = min(limits.first_wait * 2**health.tries, limits.longest_wait)
    return replace(
        health,
        state="lost",
        since=now,
        reason=reason,
        faults=faults,
        tries=health.tries + 1,
        again_at=now + wait,
    )


def drained(health: Health, now: float) -> Health:
    """Given to nobody any more; a session that runs ends first."""
    if health.state in ("draining", "drained"):
        return health
    state: State = "draining" if health.state == "busy" else "drained"
    return replace(health, state=state, since=now, reason="drained by hand", again_at=None)


def resumed(health: Health, now: float) -> Health:
    """From a drain or a quarantine, with a clean record."""
    if health.state == "draining":
        return replace(health, state="busy", since=now, reason="")
    if health.state not in ("drained", "quarantined", "lost"):
        return health
    return Health(since=now, sessions=health.sessions)


def time_passed(health: Health, now: float, limits: Limits) -> Health:
    """Rests end, and a device that did well for long is as good as new."""
    if health.again_at is not None and now >= health.again_at:
        faults = () if health.state == "quarantined" else health.faults
        return replace(health, state="starting", since=now, again_at=None, faults=faults)
    faults = _recent(health.faults, now, limits)
    if faults != health.faults:
        health = replace(health, faults=faults)
    if health.rests and health.state in ("free", "busy") and not faults:
        longest = min(limits.first_rest * 2**health.rests, limits.longest_rest)
        if now - health.since > max(limits.window, longest):
            return replace(health, rests=0)
    return health


def _recent(faults: tuple[float, ...], now: float, limits: Limits) -> tuple[float, ...]:
    return tuple(fault for fault in faults if now - fault < limits.window)
