"""The builders and runners of a search: a thread for each, and queues between.

A batch goes from a builder to a runner and back to the search. A failure on the way is recorded
with its candidate; the batch always arrives.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import DeviceError
from edgekit.base.events import Events
from edgekit.base.wording import duration
from edgekit.tuning.batches import OWN, Batch
from edgekit.tuning.builders import Builders, compiled
from edgekit.tuning.messages import (
    BatchDone,
    Begun,
    ErrorKind,
    SessionEnded,
    Taken,
    Timed,
)
from edgekit.tuning.pace import Pace
from edgekit.tuning.search import Search
from edgekit.tuning.statistics import drifted

_LOOK_SECONDS = 0.2
_SECONDS_WITHOUT_DEVICES = 900.0
_START_SECONDS = 620.0
"""The longest wait for a device, the upload and the rule's own way."""
_OWN_ATTEMPTS = 3
_RUN_SECONDS = 20.0
"""The shortest time to wait for a message from a device."""
_TIMES_OWN, _TIMES_FIRST = 400.0, 20.0
"""The longest time of a candidate, relative to one run of the rule's own way, and to all that
passed until that was timed in the same session. What slows the device or this host slows both."""
_AGAIN_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Waits between attempts to get a lost device back."""


@dataclass(frozen=True)
class DeviceNews:
    """A message about a runner that has no device at the moment."""

    text: str
    warn: bool


class Crew:
    """The threads and processes of a search; `close` ends them all."""

    def __init__(
        self,
        builders: Builders,
        runners: Sequence[Child],
        taken: Callable[[Taken], str],
        events: Events,
    ) -> None:
        self._events = events
        self._builders = builders
        self._pace = Pace(len(runners))
        self._to_build: queue.Queue[Batch | None] = queue.Queue()
        self._to_run: queue.Queue[Batch | None] = queue.Queue()
        self._arrived: queue.Queue[Batch | DeviceNews | Exception] = queue.Queue()
        self._over = threading.Event()
        self._runners = list(runners)
        self._lanes = 0
        self._threads: list[threading.Thread] = []
        for child in runners:
            self._start(self._run, child, taken)

    def run(self, search: Search[Batch]) -> None:
        """Measure the search's batches until there are no more."""
        under_way = 0
        last = time.monotonic()
        while True:
            most = self._pace.most(self._builders.width)
            while under_way < most and (batch := search.next()) is not None:
                under_way += 1
                self._to_build.put(batch)
                if self._lanes < min(under_way, self._builders.width):
                    self._lanes += 1
                    self._start(self._build)
            if search.is_late:
                waiting = self._withdrawn()
                under_way -= len(waiting)
                search.drop(waiting)
            if not under_way:
                return
            try:
                arrived = self._arrived.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if isinstance(arrived, Batch):
                last = time.monotonic()
                if arrived.repeats():
                    self._to_run.put(arrived)
                else:
                    under_way -= 1
                    search.finish(arrived)
            else:
                self._hear(arrived, time.monotonic() - last)

    def _hear(self, arrived: DeviceNews | Exception, seconds_without_results: float) -> None:
        if isinstance(arrived, Exception):
            raise arrived
        if arrived.warn:
            self._events.warn(arrived.text)
        else:
            self._events.note(arrived.text)
        if seconds_without_results > _SECONDS_WITHOUT_DEVICES:
            raise DeviceError(
                f"no device was available for {duration(_SECONDS_WITHOUT_DEVICES)}",
                hint="the measurements are kept: run the same command when a device is back",
            )

    def _withdrawn(self) -> list[Batch]:
        """Return the batches that no runner has started, and empty the queues."""
        found = []
        for waiting in (self._to_build, self._to_run):
            while True:
                try:
                    batch = waiting.get_nowait()
                except queue.Empty:
                    break
                if batch is not None:
                    found.append(batch)
        return found

    def close(self) -> None:
        self._over.set()
        self._builders.close()
        for child in self._runners:
            child.close()
        for _ in self._threads:
            self._to_build.put(None)
            self._to_run.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=self._guarded, args=(work, *arguments), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by the search
            if not self._over.is_set():
                self._arrived.put(error)

    def _build(self) -> None:
        while (batch := self._to_build.get()) is not None and not self._over.is_set():
            began = time.monotonic()
            batch.built = compiled(self._builders, batch)
            self._pace.built(time.monotonic() - began)
            for failure in batch.built.failures:
                place, kind = failure.place, failure.kind
                batch.timed[place] = Timed(place, None, kind, failure.reason)
            own_failed = batch.timed.pop(OWN, None)
            if own_failed is not None:
                batch.broken = own_failed.reason
            self._pass_on(batch)

    def _run(self, child: Child, taken: Callable[[Taken], str]) -> None:
        runner = _Runner(child, taken)
        lost = 0
        while (batch := self._to_run.get()) is not None and not self._over.is_set():
            ended = runner.measure(batch)
            if ended is None:
                lost = 0
                self._pace.ran(runner.seconds)
                self._arrived.put(batch)
                continue
            if self._over.is_set():
                return
            if ended.began:
                lost = 0
                self._pass_on(batch)
                continue
            # No device: other runners measure this batch, and this one tries again later.
            self._to_run.put(batch)
            text = f"a device is left out for now: {ended.reason}"
            self._arrived.put(DeviceNews(text, warn=lost == 0))
            wait = _AGAIN_SECONDS[min(lost, len(_AGAIN_SECONDS) - 1)]
            lost += 1
            self._over.wait(wait)

    def _pass_on(self, batch: Batch) -> None:
        if batch.is_over:
            self._arrived.put(batch)
        else:
            self._to_run.put(batch)


class _Runner:
    """A child process that measures, and its state."""

    def __init__(self, child: Child, taken: Callable[[Taken], str]) -> None:
        self._child = child
        self._taken = taken
        self._device = ""
        self._began = 0.0
        self.seconds = 0.0
        """The time of the last batch, without the wait for a device."""
        self._under_way = OWN
        """The place of the candidate that is being measured."""
        self._is_ready = False
        """Whether this session has timed the rule's own way."""

    def measure(self, batch: Batch) -> SessionEnded | None:
        """Measure a batch; return None if it was finished."""
        assert batch.built is not None
        own, *_ = (f for f in batch.built.functions if f.place == OWN)
        by_place = {f.place: f for f in batch.built.functions}
        left = batch.left()
        functions = (own, *(by_place[place] for place in left))
        self._began = time.monotonic()
        self._under_way, self._is_ready = OWN, False
        try:
            self._child.send(replace(batch.built, functions=functions))
            return self._heard(batch)
        except ChildGone as gone:
            self._device = ""
            self._blame(batch, "timeout" if gone.silent else "run", gone.reason)
            return SessionEnded(gone.reason, began=True)
        finally:
            self.seconds = time.monotonic() - self._began
            batch.seconds += self.seconds

    def _heard(self, batch: Batch) -> SessionEnded | None:
        patience = _RUN_SECONDS
        while True:
            started = time.monotonic()
            message = self._child.receive(patience if self._is_ready else _START_SECONDS)
            if isinstance(message, Taken):
                self._device = self._taken(message)
                self._began = time.monotonic()  # waiting for a device does not count
            elif isinstance(message, Begun):
                self._under_way = message.place
            elif isinstance(message, Timed):
                if message.place == OWN:
                    batch.own_us = message.microseconds
                    assert message.microseconds is not None
                    self._is_ready = True
                    patience = max(
                        _RUN_SECONDS,
                        _TIMES_OWN * message.microseconds / 1e6,
                        _TIMES_FIRST * (time.monotonic() - self._began),
                    )
                else:
                    batch.timed[message.place] = message
            elif isinstance(message, BatchDone):
                batch.device = self._device
                batch.drift = None
                if drifted(message.own_first, message.own_last):
                    batch.drift = (message.own_first, message.own_last)
                return None
            else:
                assert isinstance(message, SessionEnded)
                self._device = ""
                if message.began:
                    slow = time.monotonic() - started > patience
                    self._blame(batch, "timeout" if slow else "run", message.reason)
                return message

    def _blame(self, batch: Batch, kind: ErrorKind, reason: str) -> None:
        """Blame the candidate under way: retry it the first time, fail it the second time."""
        batch.device = batch.device or self._device
        culprit = self._under_way
        if culprit == OWN:
            batch.own_failures += 1
            if batch.own_failures == _OWN_ATTEMPTS and batch.own_us is None:
                batch.broken = f"the rule's own way can't be measured: {reason}"
            elif batch.own_failures == _OWN_ATTEMPTS:
                batch.timed |= {place: Timed(place, None, "device") for place in batch.left()}
        elif culprit in batch.blamed:
            batch.timed[culprit] = Timed(culprit, None, kind, reason)
        else:
            batch.blamed.add(culprit)
