"""Connects to a device in the background: the login and the start of the agent take a second each
on a slow board."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.lease_client import LeaseClient

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_STOP = 5.0


@dataclass(frozen=True)
class Reached:
    connection: Connection
    client: LeaseClient
    closing: ExitStack
    """Stack that ends both."""


class EarlyConnection:
    """A connection under way. The context manager ends it if it was not taken over."""

    def __init__(self, connect: Callable[[ExitStack], tuple[Connection, LeaseClient]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._reached: Reached | None = None
        self._error: DeviceError | None = None
        self._given_up = self._was_taken = False
        self._thread = threading.Thread(target=self._go, name="edgekit-early", daemon=True)

    def take(self) -> Reached | None:
        """Wait for the connection; None if it was taken already, DeviceError if it failed."""
        while self._thread.is_alive():
            self._thread.join(_SECONDS_BETWEEN_LOOKS)
        with self._lock:
            if self._was_taken:
                return None
            self._was_taken = True
            if self._error is not None:
                raise self._error
            reached, self._reached = self._reached, None
            return reached

    def __enter__(self) -> EarlyConnection:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._given_up = True
            reached, self._reached = self._reached, None
        if reached is not None:
            reached.closing.close()
        self._thread.join(_SECONDS_TO_STOP)

    def _go(self) -> None:
        with ExitStack() as closing:
            try:
                connection, client = self._connect(closing)
            except DeviceError as error:
                self._error = error
                return
            with self._lock:
                if not self._given_up:
                    self._reached = Reached(connection, client, closing.pop_all())
