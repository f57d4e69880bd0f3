"""What a search finds, kept while it goes on.

`add` writes a file and returns: from then on a kill or a lost connection takes nothing away. A
thread brings the files into the store, so that nobody who measures waits for a database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.store.address import default_url, findings_folder, is_off, name_of, waiting
from edgekit.store.findings import Findings
from edgekit.store.moments import now
from edgekit.store.outbox import deliver_findings, post_findings
from edgekit.store.tuning_runs import SessionState, TuningProgress, TuningRecord, TuningSession

if TYPE_CHECKING:
    from edgekit.store.database import Store

_SIGN_SECONDS = 30.0
_TRY_AGAIN_SECONDS = 30.0


@contextmanager
def tuning_log(
    session: TuningSession, url: str | None = None, events: Events = SILENT
) -> Iterator[TuningLog]:
    """The session begins, and ends as "done", as "interrupted" by Ctrl-C, or as "failed"; or in the
    state that the log was given. Where the store is off, a warning says that nothing is kept."""
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
    def __init__(
        self, session: TuningSession, url: str | None = None, events: Events = SILENT
    ) -> None:
        self.session = session
        self.state: SessionState = "running"
        """How it is to end, where that is not "done"."""
        self._events = events
        self._url = url or default_url()
        self._folder = findings_folder(self._url)
        self._is_off = is_off(self._url)
        self._unwritten: list[Findings] = []
        self._told: set[str] = set()
        self._carrier = _Carrier(self._url, self._folder, session.id)

    @property
    def remembers(self) -> bool:
        return not self._is_off

    def begin(self) -> None:
        """StorageError where not even a file can be written: nothing would be gained."""
        if self._is_off:
            self._events.warn("no store is in use: what this search finds is not remembered")
            return
        post_findings(Findings(session=self.session), self._folder)
        self._carrier.start()
        self._carrier.wake()

    def add(self, records: Sequence[TuningRecord], progress: TuningProgress | None = None) -> None:
        """Safe when this returns. Where not even a file can be written, a warning says so, and it
        is tried again with whatever comes next."""
        self._post(Findings(records=tuple(records), progress=progress))

    def end(self, state: SessionState) -> None:
        moment = now()
        ended = replace(self.session, state=state, ended_at=moment, heard_at=moment)
        self._post(Findings(session=ended))
        if self._is_off:
            return
        self._carrier.stop()
        self._warn(self._carrier.problem)
        if self._unwritten:
            self._events.warn(f"the last {len(self._unwritten)} results of the search are lost")
        left = len(waiting(self._folder))
        if left:
            self._events.warn(
                f"what was found waits in {self._folder}, and goes into "
                f"{name_of(self._url)} when that can be reached"
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
        self._carrier.wake()
        self._warn(self._carrier.problem)

    def _warn(self, problem: str | None) -> None:
        """Each problem once."""
        if problem is not None and problem not in self._told:
            self._told.add(problem)
            self._events.warn(f"what the search finds is not in the store yet: {problem}")


class _Carrier:
    """The thread between the files and the store."""

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
        """When everything is in the store, or could not be brought there."""
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
                self._carry()
                self.problem = None
            except EdgekitError as error:
                self.problem = error.message
                self._close()
            if is_last:
                self._close()
                return
            if self.problem is not None:
                self._is_over.wait(_TRY_AGAIN_SECONDS)

    def _carry(self) -> None:
        from edgekit.store.database import open_store
        from edgekit.store.tuning import give_sign_of_life

        if self._store is None:
            self._store = open_store(self._url, patient=False)
        deliver_findings(self._store, self._folder)
        if time.monotonic() - self._last_sign >= _SIGN_SECONDS:
            give_sign_of_life(self._store, self._session)
            self._last_sign = time.monotonic()

    def _close(self) -> None:
        from edgekit.store.database import close_store

        if self._store is not None:
            close_store(self._store)
            self._store = None
