"""On the way to a device while something else is done: logging in and starting the agent there take
a second each on a slow board."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError

if TYPE_CHECKING:
    from edgekit.devices.linux.attendant import Attendant
    from edgekit.devices.linux.connection import Connection

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_STOP = 5.0


@dataclass(frozen=True)
class Arrived:
    connection: Connection
    attendant: Attendant
    closing: ExitStack
    """Ends both."""


class Arrival:
    """Use as a context manager: what nobody took over is ended with the block."""

    def __init__(self, arrive: Callable[[ExitStack], tuple[Connection, Attendant]]) -> None:
        self._arrive = arrive
        self._lock = threading.Lock()
        self._arrived: Arrived | None = None
        self._error: DeviceError | None = None
        self._given_up = self._was_taken = False
        self._thread = threading.Thread(target=self._go, name="edgekit-arrival", daemon=True)

    def take(self) -> Arrived | None:
        """Wait until it is there; None for whoever comes second. DeviceError where it failed."""
        while self._thread.is_alive():
            self._thread.join(_SECONDS_BETWEEN_LOOKS)
        with self._lock:
            if self._was_taken:
                return None
            self._was_taken = True
            if self._error is not None:
                raise self._error
            arrived, self._arrived = self._arrived, None
            return arrived

    def __enter__(self) -> Arrival:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._given_up = True
            arrived, self._arrived = self._arrived, None
        if arrived is not None:
            arrived.closing.close()
        self._thread.join(_SECONDS_TO_STOP)

    def _go(self) -> None:
        with ExitStack() as closing:
            try:
                connection, attendant = self._arrive(closing)
            except DeviceError as error:
                self._error = error
                return
            with self._lock:
                if not self._given_up:
                    self._arrived = Arrived(connection, attendant, closing.pop_all())
