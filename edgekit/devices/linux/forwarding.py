"""Ports that lead through an SSH connection. They listen on loopback, for this user and root."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.base.errors import DeviceError
from edgekit.base.own_listener import LOOPBACK, listen_on_loopback

if TYPE_CHECKING:
    from paramiko import Channel

_BLOCK = 1 << 16
_SECONDS_TO_CONNECT = 10.0


class ChannelOpener(Protocol):
    """The connection that carries forwarded ports."""

    def open_channel(self, kind: str, destination: tuple[str, int] | None = None) -> Channel:
        """Open a channel; DeviceError if the device refuses."""
        ...


class LocalForward:
    """A local port that leads to a port as seen from the device.

    `port` is the local port, 0 for any. `lead_to` sets the destination later, for a server that
    must know the local port before it listens. `refused` is called for connections of other users.
    """

    def __init__(
        self,
        connection: ChannelOpener,
        destination: tuple[str, int],
        port: int = 0,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._connection = connection
        self._destination = destination
        self._listener = listen_on_loopback(port, refused)
        self._clients: set[socket.socket] = set()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listener.serve_each, args=(self._serve,), daemon=True).start()

    def lead_to(self, port: int) -> None:
        self._destination = (self._destination[0], port)

    def close(self) -> None:
        for open_socket in (self._listener, *self._clients):
            _shut(open_socket)

    def _serve(self, client: socket.socket) -> None:
        self._clients.add(client)
        try:
            channel = self._connection.open_channel("direct-tcpip", self._destination)
        except DeviceError:
            _shut(client)  # a client of a port can be told nothing more
        else:
            join(client, channel)
        self._clients.discard(client)


def bring(connection: ChannelOpener, local_port: int, destination: tuple[str, int]) -> None:
    """Connect a port of this machine's loopback with one as seen from the device, until either
    closes.

    A port of the device that leads to this machine would be open to every user of the device.
    Without a listener on this machine's port, the device's side sees a connection that ends at
    once.
    """
    try:
        channel = connection.open_channel("direct-tcpip", destination)
    except DeviceError:
        return  # the lost connection is reported by the caller that follows the agent
    try:
        client = socket.create_connection((LOOPBACK, local_port), timeout=_SECONDS_TO_CONNECT)
    except OSError:
        channel.close()
        return
    client.settimeout(None)
    join(client, channel)


def join(client: socket.socket, channel: Channel) -> None:
    """Copy data both ways until both sides are done."""
    upward = threading.Thread(target=_pump, args=(client, channel), daemon=True)
    upward.start()
    _pump(channel, client)
    upward.join()
    _shut(client)
    channel.close()


def _pump(source: Any, sink: Any) -> None:
    try:
        while data := source.recv(_BLOCK):
            sink.sendall(data)
    except OSError:
        _shut(source)
        _shut(sink)
        return
    try:
        if isinstance(sink, socket.socket):
            sink.shutdown(socket.SHUT_WR)
        else:
            sink.shutdown_write()
    except (OSError, EOFError):
        _shut(sink)


def _shut(either: Any) -> None:
    try:
        if isinstance(either, socket.socket):
            either.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # already disconnected
    either.close()
