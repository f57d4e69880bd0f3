"""Searches for faster kernels as they are remembered: which there were, and what each one found."""

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
    session: TuningSession
    progress: TuningProgress | None
    """Where it stands, or ended."""


@dataclass(frozen=True)
class SessionListing:
    store: str
    sessions: tuple[SessionSummary, ...]


@dataclass(frozen=True)
class SessionReport:
    session: TuningSession
    curve: tuple[TuningProgress, ...]
    """The oldest first."""
    kernels: tuple[KernelSearch, ...]
    failures: Mapping[str, int]
    """By kind."""


@dataclass(frozen=True)
class SessionCurve:
    session: TuningSession
    curve: tuple[TuningProgress, ...]


def list_sessions(limit: int, url: str | None = None) -> SessionListing:
    """The latest first."""
    from edgekit.store.tuning import last_progress, sessions

    with opened_store(url) as store:
        found = tuple(
            SessionSummary(session, last_progress(store, session.id))
            for session in sessions(store, limit)
        )
        return SessionListing(str(store), found)


def show_session(name: str, url: str | None = None) -> SessionReport:
    """By its id, the beginning of it, or `latest`."""
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
    """Those that run, and the latest that ended, up to so many; those that run first. A page that
    is asked again soon does not wait long for the store."""
    from edgekit.store.tuning import running_sessions, sessions

    with opened_store(url, patient=False) as store:
        running = running_sessions(store)
        known = {session.id for session in running}
        ended = [session for session in sessions(store, limit) if session.id not in known]
        return tuple(_curve(store, session) for session in (*running, *ended[:limit]))


def running_now(url: str | None = None) -> tuple[SessionSummary, ...]:
    """With where each one stands."""
    from edgekit.store.tuning import last_progress, running_sessions

    with opened_store(url, patient=False) as store:
        return tuple(SessionSummary(s, last_progress(store, s.id)) for s in running_sessions(store))


def _curve(store: Store, session: TuningSession) -> SessionCurve:
    from edgekit.store.tuning import progress_of

    return SessionCurve(session, progress_of(store, session.id))
