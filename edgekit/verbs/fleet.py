"""Works on several devices at once, one thread each. A failure stops no other device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from edgekit.base.errors import DevicesFailedError, EdgekitError, ErrorReport
from edgekit.base.events import SILENT, Event, Events, Note, Warned
from edgekit.base.options import option
from edgekit.base.wording import counted

if TYPE_CHECKING:
    from edgekit.devices.choice import Candidate
    from edgekit.devices.device import Device

T = TypeVar("T")

_MOST_AT_ONCE = 16
_SECONDS_TO_STOP = 5.0


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result on one device: a report or an error."""

    device: str
    seconds: float
    report: T | None
    error: ErrorReport | None


def on_each(
    candidates: Sequence[Candidate],
    work: Callable[[Device, Events], T],
    events: Events = SILENT,
) -> tuple[Outcome[T], ...]:
    """Do `work` on every device at the same time. Return the outcomes in the order of the devices.

    Ctrl-C ends all of it: work stops at its next event, and on a remote device with its connection.
    """
    found: dict[str, Outcome[T]] = {}
    bugs: list[Exception] = []
    waiting: SimpleQueue[tuple[str, Device]] = SimpleQueue()
    labelled = _LabelledEvents(events)

    def attempt(name: str, device: Device) -> None:
        started = time.monotonic()
        report = error = None
        try:
            report = work(device, labelled.of(name))
        except EdgekitError as failure:
            error = failure.report()
            labelled.of(name).warn(f"failed: {failure.message}")
        found[name] = Outcome(name, time.monotonic() - started, report, error)

    def take_turns() -> None:
        while not labelled.stopped:
            try:
                attempt(*waiting.get_nowait())
            except (Empty, KeyboardInterrupt):
                return
            except Exception as bug:  # noqa: BLE001 - raised below, when the others are done
                bugs.append(bug)

    for candidate in candidates:
        started = time.monotonic()
        try:
            waiting.put((candidate.name, candidate.reach(events)))
        except EdgekitError as failure:
            events.warn(f"{candidate.name}: failed: {failure.message}")
            seconds = time.monotonic() - started
            found[candidate.name] = Outcome(candidate.name, seconds, None, failure.report())
    threads = [
        threading.Thread(target=take_turns, name=f"edgekit-device-{number}", daemon=True)
        for number in range(min(waiting.qsize(), _MOST_AT_ONCE))
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        labelled.stop()
        patience = time.monotonic() + _SECONDS_TO_STOP
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(patience - time.monotonic(), 0))
        raise
    if bugs:
        raise bugs[0]
    return tuple(found[candidate.name] for candidate in candidates)


def raise_if_any_failed(outcomes: Sequence[Outcome[T]]) -> None:
    """Raise DevicesFailedError with the devices that failed and the reasons."""
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if not failed:
        return
    names = ", ".join(outcome.device for outcome in failed)
    details = []
    for outcome in failed:
        assert outcome.error is not None
        details.append(f"{outcome.device}: {outcome.error.message}")
        if outcome.error.hint:
            details.append(f"  {outcome.error.hint}")
    raise DevicesFailedError(
        f"{len(failed)} of {counted(len(outcomes), 'device')} failed: {names}",
        hint=f"fix them and repeat with {option('device')}: nothing is built or sent twice",
        details=tuple(details),
    )


class _LabelledEvents:
    """Passes the events of several threads to one listener, one at a time, with the device's name.

    Once stopped, a thread is interrupted at its next event.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._one_at_a_time = threading.Lock()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()

    def of(self, name: str) -> Events:
        interrupted = threading.Event()

        def send(event: Event) -> None:
            if self.stopped:
                if not interrupted.is_set():
                    interrupted.set()
                    raise KeyboardInterrupt
                return  # the thread is ending already
            with self._one_at_a_time:
                self._events.send(_named(event, name))

        return Events(send)


def _named(event: Event, name: str) -> Event:
    if isinstance(event, (Note, Warned)):
        return replace(event, text=_with_name(event.text, name))
    return replace(event, title=_with_name(event.title, name))


def _with_name(text: str, name: str) -> str:
    return text if name in text.split() else f"{name}: {text}"
