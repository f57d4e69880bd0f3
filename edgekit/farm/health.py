"""The state of a device of the farm, and how events change it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgekit.devices.keeper_messages import State

SERVING: tuple[State, ...] = ("starting", "free", "busy", "lost", "draining")
"""The states in which a worker runs or is about to be started."""

_UP: tuple[State, ...] = ("starting", "free", "busy")


@dataclass(frozen=True)
class Limits:
    """The limits after which a device is retried, quarantined or counted as hanging."""

    faults: int = 3
    """The number of losses within `window` seconds that bring quarantine."""
    window: float = 600.0
    first_rest: float = 60.0
    """The length of the first quarantine; it doubles each time."""
    longest_rest: float = 3600.0
    first_wait: float = 1.0
    """The wait before a lost device is tried again; it doubles each time."""
    longest_wait: float = 30.0
    silence: float = 30.0
    """The seconds without a sign of life after which a worker is killed."""
    overdue: float = 10.0
    """The seconds past its lease after which a session's device counts as hanging."""


LONGEST_TURN = 1.0
"""The most seconds of a worker's silence that one turn of the keeper adds. A turn that took longer
is a pause of the keeper, or of the whole host, and says nothing about a worker."""


def silence_of_a_turn(before: float, now: float) -> float:
    """Return the seconds that workers count as silent for between two turns of the keeper."""
    return min(max(now - before, 0.0), LONGEST_TURN)


@dataclass(frozen=True)
class Health:
    state: State = "starting"
    """Never reserved: a reservation is no part of a device's health."""
    since: float = 0.0
    reason: str = ""
    """The reason why the device is unavailable; empty if it is available."""
    faults: tuple[float, ...] = ()
    """The times of its losses within the window."""
    tries: int = 0
    """The number of failed starts in a row."""
    rests: int = 0
    """The number of quarantines in a row."""
    again_at: float | None = None
    """The time of the next automatic try."""
    sessions: int = 0
    """The number of sessions served since the farm came up."""

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


def was_withheld(health: Health, now: float) -> Health:
    """Record that the device's worker was ended, so that the farm itself can lend the device."""
    if health.state not in _UP:
        return health
    return replace(health, state="starting", since=now, reason="")


def was_lent(health: Health) -> Health:
    return replace(health, sessions=health.sessions + 1)


def was_given_back(health: Health, now: float) -> Health:
    if health.state == "draining":
        return replace(health, state="drained", since=now)
    if health.state not in _UP:
        return health
    return replace(health, state="free", since=now, reason="")


def was_lost(health: Health, reason: str, now: float, limits: Limits) -> Health:
    """Record the end of a worker. Repeated losses bring quarantine, longer each time."""
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
    """Take a device out of use; a running session ends first."""
    if health.state in ("draining", "drained"):
        return health
    state: State = "draining" if health.state == "busy" else "drained"
    return replace(health, state=state, since=now, reason="drained by hand", again_at=None)


def resumed(health: Health, now: float) -> Health:
    """Return a device from drain or quarantine with a clean record."""
    if health.state == "draining":
        return replace(health, state="busy", since=now, reason="")
    if health.state not in ("drained", "quarantined", "lost"):
        return health
    return Health(since=now, sessions=health.sessions)


def time_passed(health: Health, now: float, limits: Limits) -> Health:
    """End quarantines that are over, and forget losses and quarantines of long ago."""
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
