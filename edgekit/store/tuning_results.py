"""Searches for faster kernels in the store: which ran, and what each found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.store.results import opened_store
from edgekit.store.tuning_runs import KernelSearch, TuningProgress, TuningSession

if TYPE_CHECKING:
    from edgekit.store.database import Store


@dataclass(frozen=True)
class SessionSummary:
    """A session and its last point."""

    session: TuningSession
    progress: TuningProgress | None


@dataclass(frozen=True)
class SessionListing:
    """Sessions of a store."""

    store: str
    sessions: tuple[SessionSummary, ...]


@dataclass(frozen=True)
class SessionReport:
    """One session in full."""

    session: TuningSession
    curve: tuple[TuningProgress, ...]
    """The points, oldest first."""
    kernels: tuple[KernelSearch, ...]
    failures: Mapping[str, int]
    """The number of failed candidates by the kind of failure."""


@dataclass(frozen=True)
class SessionCurve:
    """A session and its points, oldest first."""

    session: TuningSession
    curve: tuple[TuningProgress, ...]


def list_sessions(limit: int, url: str | None = None) -> SessionListing:
    """List sessions, latest first."""
    from edgekit.store.tuning import last_progress, sessions

    with opened_store(url) as store:
        found = tuple(
            SessionSummary(session, last_progress(store, session.id))
            for session in sessions(store, limit)
        )
        return SessionListing(str(store), found)


def show_session(name: str, url: str | None = None) -> SessionReport:
    """Report one session: by its id, by the beginning of its id, or as `latest`."""
    from edgekit.store.tuning import failures_of, find_session, kernels_of, progress_of

    with opened_store(url) as store:
        session = find_session(store, name)
        return SessionReport(
            session,
            progress_of(store, session.id),
            kernels_of(store, session.id),
            failures_of(store, session.id),
        )


def session_curves(limit: int, url: str | None = None) -> tuple[SessionCurve, ...]:
    """List running sessions, then the latest ended ones up to a limit.

    It does not wait long for the store: a page asks again soon.
    """
    from edgekit.store.tuning import running_sessions, sessions

    with opened_store(url, patient=False) as store:
        running = running_sessions(store)
        running_ids = {session.id for session in running}
        ended = [session for session in sessions(store, limit) if session.id not in running_ids]
        return tuple(_curve(store, session) for session in (*running, *ended[:limit]))


def running_now(url: str | None = None) -> tuple[SessionSummary, ...]:
    """List running sessions, each with its last point."""
    from edgekit.store.tuning import last_progress, running_sessions

    with opened_store(url, patient=False) as store:
        return tuple(SessionSummary(s, last_progress(store, s.id)) for s in running_sessions(store))


def _curve(store: Store, session: TuningSession) -> SessionCurve:
    from edgekit.store.tuning import progress_of

    return SessionCurve(session, progress_of(store, session.id))
