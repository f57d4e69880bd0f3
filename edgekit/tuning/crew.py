"""The builders and runners of a search: a thread for each child process, and queues between.

A batch goes from a builder to a runner and back to the search. A failure on the way is recorded
with its candidate; the batch always arrives.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.compiler.schedules.choices import Choice
from edgekit.tuning.child import Child, ChildGone
from edgekit.tuning.statistics import drifted
from edgekit.tuning.work import (
    BatchDone,
    BatchOrder,
    Begun,
    BuildFailure,
    BuiltBatch,
    ErrorKind,
    SessionEnded,
    Subject,
    Taken,
    Timed,
)

_BUILD_SECONDS = 60.0
_BUILD_SECONDS_EACH = 4.0
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
_OWN = -1


@dataclass
class Batch:
    """Candidates of one kernel under way."""

    number: int
    subject: Subject
    choices: tuple[Choice, ...]
    folder: Path
    inputs: Path
    built: BuiltBatch | None = None
    device: str = ""
    own_us: float | None = None
    timed: dict[int, Timed] = field(default_factory=dict)
    """Results by place."""
    blamed: set[int] = field(default_factory=set)
    """Places under way when a session ended: retried once, after all others."""
    own_failures: int = 0
    """How often a session ended while the rule's own way was measured."""
    drift: tuple[float, float] | None = None
    repeated: bool = False
    seconds: float = 0.0
    """Time spent on devices."""
    broken: str = ""
    """The reason why nothing could be measured."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to measure; without choices, the rule's own way counts."""
        if self.broken:
            return True
        return not self.left() and (bool(self.choices) or self.own_us is not None)

    def left(self) -> list[int]:
        """Return the built places without a result, blamed ones last."""
        assert self.built is not None
        places = [f.place for f in self.built.functions if f.place != _OWN]
        missing = [place for place in places if place not in self.timed]
        return sorted(missing, key=lambda place: place in self.blamed)

    def clean_up(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class DeviceNews:
    """A message about a device for the user."""

    text: str
    warn: bool = True
    lost: bool = False
    """Whether a runner has no device at the moment."""


@dataclass(frozen=True)
class Fault:
    """A bug in edgekit that stopped a thread of the crew."""

    error: Exception


Heard = Callable[[Batch | DeviceNews | Fault], None]


class Crew:
    """The threads and processes of a search; `close` ends them all."""

    def __init__(
        self,
        builders: Sequence[Child],
        runners: Sequence[Child],
        heard: Heard,
        taken: Callable[[Taken], str],
    ) -> None:
        self._heard = heard
        self._to_build: queue.Queue[Batch | None] = queue.Queue()
        self._to_run: queue.Queue[Batch | None] = queue.Queue()
        self._over = threading.Event()
        self._children = [*builders, *runners]
        self._threads = [
            *(
                threading.Thread(target=self._guarded, args=(self._build, child))
                for child in builders
            ),
            *(
                threading.Thread(target=self._guarded, args=(self._run, child, taken))
                for child in runners
            ),
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def take(self, batch: Batch) -> None:
        self._to_build.put(batch)

    def measure_again(self, batch: Batch) -> None:
        self._to_run.put(batch)

    def withdraw(self) -> list[Batch]:
        """Return the batches that still wait in the queues, and empty the queues."""
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
        for child in self._children:
            child.close()
        for _ in self._threads:
            self._to_build.put(None)
            self._to_run.put(None)
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by the search
            if not self._over.is_set():
                self._heard(Fault(error))

    def _build(self, child: Child) -> None:
        while (batch := self._to_build.get()) is not None and not self._over.is_set():
            batch.built = _built(child, batch)
            for failure in batch.built.failures:
                batch.timed[failure.place] = Timed(
                    failure.place, None, failure.kind, failure.reason
                )
            own_failed = batch.timed.pop(_OWN, None)
            if own_failed is not None:
                batch.broken = own_failed.reason
            if batch.is_over:
                self._heard(batch)
            else:
                self._to_run.put(batch)

    def _run(self, child: Child, taken: Callable[[Taken], str]) -> None:
        runner = _Runner(child, taken)
        lost = 0
        while (batch := self._to_run.get()) is not None and not self._over.is_set():
            ended = runner.measure(batch)
            if ended is None:
                lost = 0
                self._heard(batch)
                continue
            if self._over.is_set():
                return
            if ended.began:
                lost = 0
                self._requeue(batch)
                continue
            # No device: other runners measure this batch, and this one tries again later.
            self._to_run.put(batch)
            text = f"a device is left out for now: {ended.reason}"
            self._heard(DeviceNews(text, warn=lost == 0, lost=True))
            wait = _AGAIN_SECONDS[min(lost, len(_AGAIN_SECONDS) - 1)]
            lost += 1
            self._over.wait(wait)

    def _requeue(self, batch: Batch) -> None:
        if batch.is_over:
            self._heard(batch)
        else:
            self._to_run.put(batch)


def _built(child: Child, batch: Batch) -> BuiltBatch:
    """Build all candidates at once, or one by one if that ended the compiler."""
    order = BatchOrder(batch.subject, batch.choices, batch.folder / "all", batch.inputs)
    order.folder.mkdir(parents=True)
    answer = _answer(child, order)
    if isinstance(answer, BuiltBatch):
        return answer
    good, failures = [], []
    for place, choice in enumerate(batch.choices):
        alone = replace(order, choices=(choice,), folder=batch.folder / f"alone{place}")
        alone.folder.mkdir()
        tried = _answer(child, alone)
        if isinstance(tried, BuiltBatch) and not tried.failures:
            good.append(place)
        elif isinstance(tried, BuiltBatch):
            failures += [replace(failure, place=place) for failure in tried.failures]
        else:
            failures.append(replace(tried, place=place))
        shutil.rmtree(alone.folder, ignore_errors=True)
    again = replace(
        order, choices=tuple(batch.choices[p] for p in good), folder=batch.folder / "good"
    )
    again.folder.mkdir()
    rest = _answer(child, again)
    if not isinstance(rest, BuiltBatch):
        lost = [replace(rest, place=place) for place in (_OWN, *good)]
        empty = batch.folder / "nothing.so"
        return BuiltBatch(empty, batch.inputs, batch.subject.output, (), (*failures, *lost))
    functions = tuple(
        replace(f, place=f.place if f.place == _OWN else good[f.place]) for f in rest.functions
    )
    more = [replace(f, place=f.place if f.place == _OWN else good[f.place]) for f in rest.failures]
    return replace(rest, functions=functions, failures=(*failures, *more))


def _answer(child: Child, order: BatchOrder) -> BuiltBatch | BuildFailure:
    seconds = _BUILD_SECONDS + _BUILD_SECONDS_EACH * len(order.choices)
    try:
        answer = child.ask(order, seconds)
    except ChildGone as gone:
        kind: ErrorKind = "timeout" if gone.silent else "compile"
        return BuildFailure(_OWN, kind, gone.reason)
    assert isinstance(answer, BuiltBatch)
    return answer


class _Runner:
    """A child process that measures, and its state."""

    def __init__(self, child: Child, taken: Callable[[Taken], str]) -> None:
        self._child = child
        self._taken = taken
        self._device = ""
        self._began = 0.0
        self._under_way = _OWN
        """The place of the candidate that is being measured."""
        self._is_ready = False
        """Whether this session has timed the rule's own way."""

    def measure(self, batch: Batch) -> SessionEnded | None:
        """Measure a batch; return None if it was finished."""
        assert batch.built is not None
        own, *_ = (f for f in batch.built.functions if f.place == _OWN)
        by_place = {f.place: f for f in batch.built.functions}
        left = batch.left()
        functions = (own, *(by_place[place] for place in left))
        self._began = time.monotonic()
        self._under_way, self._is_ready = _OWN, False
        try:
            self._child.send(replace(batch.built, functions=functions))
            return self._heard(batch)
        except ChildGone as gone:
            self._device = ""
            self._blame(batch, "timeout" if gone.silent else "run", gone.reason)
            return SessionEnded(gone.reason, began=True)
        finally:
            batch.seconds += time.monotonic() - self._began

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
                if message.place == _OWN:
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
        if culprit == _OWN:
            batch.own_failures += 1
            if batch.own_failures == _OWN_ATTEMPTS and batch.own_us is None:
                batch.broken = f"the rule's own way can't be measured: {reason}"
            elif batch.own_failures == _OWN_ATTEMPTS:
                batch.timed |= {place: Timed(place, None, "device") for place in batch.left()}
        elif culprit in batch.blamed:
            batch.timed[culprit] = Timed(culprit, None, kind, reason)
        else:
            batch.blamed.add(culprit)
