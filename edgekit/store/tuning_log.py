"""The findings of a search, saved while it runs.

`add` writes a file and returns; a kill or a lost connection loses nothing after that. A thread
delivers the files to the store, so that the search never waits for a database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.store.address import default_url, findings_folder, is_off, name_of, waiting
from edgekit.store.database import Store
from edgekit.store.findings import Findings
from edgekit.store.moments import now
from edgekit.store.outbox import deliver_findings, post_findings
from edgekit.store.tuning_runs import SessionState, TuningProgress, TuningRecord, TuningSession

_SIGN_SECONDS = 30.0
_TRY_AGAIN_SECONDS = 30.0


@contextmanager
def tuning_log(
    session: TuningSession, url: str | None = None, events: Events = SILENT
) -> Iterator[TuningLog]:
    """Begin a session, and end it as "done", "interrupted" (Ctrl-C) or "failed".

    A search may set another `state`. If the store is off, a warning says that nothing is saved.
    """
    log = TuningLog(session, url, events)
    log.begin()
    try:
        yield log
    except Exception:
        log.end("failed")
        raise
    except BaseException:
        log.end("interrupted")
        raise
    log.end(log.state if log.state != "running" else "done")


class TuningLog:
    """The log of one session."""

    def __init__(
        self, session: TuningSession, url: str | None = None, events: Events = SILENT
    ) -> None:
        self.session = session
        self.state: SessionState = "running"
        """The state to end in; "running" stands for "done"."""
        self._events = events
        self._url = url or default_url()
        self._folder = findings_folder(self._url)
        self._is_off = is_off(self._url)
        self._unwritten: list[Findings] = []
        self._told: set[str] = set()
        self._courier = _Courier(self._url, self._folder, session.id)

    @property
    def remembers(self) -> bool:
        return not self._is_off

    def begin(self) -> None:
        """Write the session; raise StorageError if no file can be written."""
        if self._is_off:
            self._events.warn("the store is off: the results of this search are not saved")
            return
        post_findings(Findings(session=self.session), self._folder)
        self._courier.start()
        self._courier.wake()

    def add(self, records: Sequence[TuningRecord], progress: TuningProgress | None = None) -> None:
        """Save records and a point. They are on the disk when this returns.

        If no file can be written, warn, and try again with the next ones.
        """
        self._post(Findings(records=tuple(records), progress=progress))

    def end(self, state: SessionState) -> None:
        """End the session in a state, and deliver what is left."""
        moment = now()
        ended = replace(self.session, state=state, ended_at=moment, heard_at=moment)
        self._post(Findings(session=ended))
        if self._is_off:
            return
        self._courier.stop()
        self._warn(self._courier.problem)
        if self._unwritten:
            self._events.warn(f"the last {len(self._unwritten)} results of the search are lost")
        left = len(waiting(self._folder))
        if left:
            self._events.warn(
                f"results wait in {self._folder}, and go to "
                f"{name_of(self._url)} when it can be reached"
            )

    def _post(self, findings: Findings) -> None:
        if self._is_off:
            return
        self._unwritten.append(findings)
        try:
            while self._unwritten:
                post_findings(self._unwritten[0], self._folder)
                del self._unwritten[0]
        except EdgekitError as error:
            self._warn(error.message)
        self._courier.wake()
        self._warn(self._courier.problem)

    def _warn(self, problem: str | None) -> None:
        """Warn of each problem once."""
        if problem is not None and problem not in self._told:
            self._told.add(problem)
            self._events.warn(f"results of the search are not in the store yet: {problem}")


class _Courier:
    """The thread that delivers files to the store."""

    def __init__(self, url: str, folder: Path, session: str) -> None:
        self.problem: str | None = None
        self._url = url
        self._folder = folder
        self._session = session
        self._store: Store | None = None
        self._last_sign = time.monotonic()
        self._waked = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tuning log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._waked.set()

    def stop(self) -> None:
        """Return once every file is delivered or could not be."""
        self._is_over.set()
        self._waked.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._waked.wait(_SIGN_SECONDS)
            self._waked.clear()
            is_last = self._is_over.is_set()
            try:
                self._deliver()
                self.problem = None
            except EdgekitError as error:
                self.problem = error.message
                self._close()
            if is_last:
                self._close()
                return
            if self.problem is not None:
                self._is_over.wait(_TRY_AGAIN_SECONDS)

    def _deliver(self) -> None:
        from edgekit.store.database import open_store
        from edgekit.store.tuning import record_heartbeat

        if self._store is None:
            self._store = open_store(self._url, patient=False)
        deliver_findings(self._store, self._folder)
        if time.monotonic() - self._last_sign >= _SIGN_SECONDS:
            record_heartbeat(self._store, self._session)
            self._last_sign = time.monotonic()

    def _close(self) -> None:
        from edgekit.store.database import close_store

        if self._store is not None:
            close_store(self._store)
            self._store = None
