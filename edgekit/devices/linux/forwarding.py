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
    """The connection that ports lead through."""

    def open_channel(self, kind: str, destination: tuple[str, int] | None = None) -> Channel:
        """Open a channel; DeviceError where the device does not."""
        ...


class LocalForward:
    """A port here that leads to a port as seen from the device.

    `port` is the one here, 0 for any. `lead_to` changes the destination: what listens over there
    may want to be told beforehand how it is reached from here. `refused` hears of connections of
    other users.
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
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, port: int) -> None:
        self._destination = (self._destination[0], port)

    def close(self) -> None:
        for open_socket in (self._listener, *self._clients):
            _shut(open_socket)

    def _accept(self) -> None:
        for client in self._listener.connections():
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._clients.add(client)
        try:
            channel = self._connection.open_channel("direct-tcpip", self._destination)
        except DeviceError:
            _shut(client)  # all that a client of a port can be told
        else:
            join(client, channel)
        self._clients.discard(client)


def bring(connection: ChannelOpener, local_port: int, destination: tuple[str, int]) -> None:
    """Join a port of this machine's loopback and one as seen from the device, until either closes.

    It takes the place of a port of the device that leads to this machine, which every user of the
    device would reach. Where this machine's port has no listener, the device's sees a connection
    that ends at once."""
    try:
        channel = connection.open_channel("direct-tcpip", destination)
    except DeviceError:
        return  # what follows the agent tells that the connection is lost
    try:
        client = socket.create_connection((LOOPBACK, local_port), timeout=_SECONDS_TO_CONNECT)
    except OSError:
        channel.close()
        return
    client.settimeout(None)
    join(client, channel)


def join(client: socket.socket, channel: Channel) -> None:
    """Pass on what comes from either side until both are done."""
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
        pass  # not connected any more
    either.close()
