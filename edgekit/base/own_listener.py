"""Listening sockets that serve their own user and root only.

TVM's RPC has no passwords and runs what it is sent, and every user of a host reaches its loopback.
So the owner of each connection is looked up before a byte is read.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from edgekit.base.errors import DeviceError
from edgekit.base.options import option
from edgekit.base.peer_owner import OwnerUnknown, peer_uid

LOOPBACK = "127.0.0.1"
ROOT = 0
_SECONDS_BETWEEN_TELLING = 30.0
_SECONDS_AFTER_FAILURE = 0.1
_BACKLOG = 64


class Door:
    """Admits connections of this process's user and root.

    `told` gets refused connections: the first at once, then a message every half minute at most.
    """

    def __init__(self, told: Callable[[str], None] = lambda text: None) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._silent_until = 0.0
        self._untold = 0

    def admits(self, connection: socket.socket) -> bool:
        """Say whether the connection may be served; nothing is read of it or written to it."""
        try:
            uid = peer_uid(connection)
        except OwnerUnknown as unknown:
            if not unknown.is_expected:
                self._tell(f"a connection{_to_port(connection)} was refused: {unknown}")
            return False
        own = os.geteuid()
        if uid in (ROOT, own):
            return True
        users = "root only" if own == ROOT else f"user {own} and root only"
        self._tell(
            f"a connection of user {uid}{_to_port(connection)} was refused: it is for {users}"
        )
        return False

    def _tell(self, text: str) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._silent_until:
                self._untold += 1
                return
            self._silent_until = now + _SECONDS_BETWEEN_TELLING
            more, self._untold = self._untold, 0
        self._told(f"{text} (and {more} more before it)" if more else text)


class OwnListener(socket.socket):
    """A listening socket whose `accept` only returns connections of its own user and root.

    All others are closed at once.
    """

    def __init__(self, listening: socket.socket, told: Callable[[str], None]) -> None:
        timeout = listening.gettimeout()
        super().__init__(listening.family, listening.type, listening.proto, listening.detach())
        self.settimeout(timeout)
        self._door = Door(told)

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            connection, address = super().accept()
            if self._door.admits(connection):
                return connection, address
            connection.close()
            if self.gettimeout() == 0:
                # An event loop accepts as long as it can, and a stranger may call without end.
                raise BlockingIOError(errno.EAGAIN, "the connection was refused")

    def connections(self) -> Iterator[socket.socket]:
        """Accept until the listener is closed, even if single connections fail."""
        while True:
            try:
                connection, _ = self.accept()
            except OSError as error:
                if self.fileno() < 0 or error.errno in (errno.EBADF, errno.EINVAL):
                    return
                time.sleep(_SECONDS_AFTER_FAILURE)  # too many files are open, for example
            else:
                yield connection

    def serve_each(self, serve: Callable[[socket.socket], None]) -> None:
        """Serve each connection in a thread of its own, until the listener is closed."""
        for client in self.connections():
            threading.Thread(target=serve, args=(client,), daemon=True).start()


def listen_on_loopback(port: int, told: Callable[[str], None] = lambda text: None) -> OwnListener:
    """Listen on a loopback port, 0 for any. `told` gets the refused connections of others."""
    return OwnListener(socket.create_server((LOOPBACK, port), backlog=_BACKLOG), told)


def port_error(port: int, error: OSError) -> DeviceError:
    """Return the error for a port of this host that cannot be listened on."""
    reasons = {errno.EADDRINUSE: "is taken by another program", errno.EACCES: "is for root only"}
    why = reasons.get(error.errno or 0, f"cannot be used: {(error.strerror or str(error)).lower()}")
    return DeviceError(
        f"port {port} {why}",
        hint=f"choose another one with {option('port')}; `ss -ltnp sport = :{port}` names it",
    )


def _to_port(connection: socket.socket) -> str:
    if connection.family == socket.AF_UNIX:
        return ""
    with suppress(OSError):
        return f" to port {connection.getsockname()[1]}"
    return ""
