"""Ends work from another thread, with the clean-up that Ctrl-C gets."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from edgekit.base.errors import InterruptedByUserError
from edgekit.base.events import Event, Events


class Cancellation:
    """A token that ends the work of a workspace. Any thread may call `cancel`.

    Work in the main thread ends at once, as by Ctrl-C; in another thread, at its next event.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._in_main_thread = 0
        self._interrupted: set[int] = set()
        """The threads that were interrupted already: their clean-up sends events too."""

    @property
    def cancelled(self) -> bool:
        return self._asked.is_set()

    def cancel(self) -> None:
        """End the work under way, and refuse more."""
        with self._lock:
            if not self.cancelled:
                self._asked.set()
                main = threading.main_thread().ident
                if main and self._in_main_thread and callable(signal.getsignal(signal.SIGINT)):
                    self._interrupted.add(main)
                    signal.pthread_kill(main, signal.SIGINT)

    def listening(self, events: Events) -> Events:
        """Return events that end the work when they are sent after `cancel`."""

        def send(event: Event) -> None:
            thread = threading.get_ident()
            if self.cancelled and thread not in self._interrupted:
                self._interrupted.add(thread)
                raise KeyboardInterrupt
            events.send(event)

        return Events(send)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Make the block end with InterruptedByUserError when `cancel` is called."""
        if self.cancelled:
            raise _cancelled()
        is_main = threading.current_thread() is threading.main_thread()
        try:
            with self._lock:
                self._in_main_thread += is_main
            try:
                yield
            finally:
                with self._lock:
                    self._in_main_thread -= is_main
        except KeyboardInterrupt as error:
            if self.cancelled:
                raise _cancelled() from error
            raise


def _cancelled() -> InterruptedByUserError:
    return InterruptedByUserError("cancelled", hint="use a new Cancellation to work on")
