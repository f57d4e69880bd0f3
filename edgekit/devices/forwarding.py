"""Ports that lead through an SSH connection; on both ends they listen on loopback only."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

from edgekit.errors import DeviceError

if TYPE_CHECKING:
    from paramiko import Channel, Transport

    from edgekit.devices.connection import Connection

_BLOCK = 1 << 16
_LOOPBACK = "127.0.0.1"


class LocalForward:
    """A port here that leads to a port as seen from the device.

    `port` is the one here, 0 for any. `lead_to` changes the destination: what listens over there
    may want to be told beforehand how it is reached from here.
    """

    def __init__(self, connection: Connection, destination: tuple[str, int], port: int = 0) -> None:
        self._connection = connection
        self._destination = destination
        self._listener = socket.create_server((_LOOPBACK, port))
        self._clients: set[socket.socket] = set()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, port: int) -> None:
        self._destination = (self._destination[0], port)

    def close(self) -> None:
        for open_socket in (self._listener, *self._clients):
            _shut(open_socket)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
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


class ReverseForwards:
    """Ports of the device's loopback that lead to ports of ours, for as long as it is connected."""

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._local_ports: dict[int, int] = {}
        self._registering = threading.Lock()

    def open(self, local_port: int, remote_port: int) -> int:
        from paramiko import SSHException

        with self._registering:
            try:
                port: int = self._transport.request_port_forward(
                    _LOOPBACK, remote_port, self._accepted
                )
            except SSHException as error:
                if not self._transport.is_active():
                    raise
                raise DeviceError(
                    f"{self._connection.name} lends no port for connections back: {error}",
                    hint="the port may be taken, or AllowTcpForwarding be off in its sshd_config",
                ) from error
            self._local_ports[port] = local_port
            return port

    def close(self, port: int) -> None:
        """No new connections to a port over there; those that are open go on."""
        with self._registering:
            if self._local_ports.pop(port, None) is not None:
                # Not cancel_port_forward: paramiko would forget about the other ports too. And
                # without waiting: a device that hangs must keep nobody from leaving.
                self._transport.global_request(
                    "cancel-tcpip-forward", (_LOOPBACK, port), wait=False
                )

    def _accepted(self, channel: Channel, origin: object, server: tuple[str, int]) -> None:
        # Called on the connection's own thread, which must go on.
        threading.Thread(target=self._serve, args=(channel, server[1]), daemon=True).start()

    def _serve(self, channel: Channel, remote_port: int) -> None:
        with self._registering:
            local_port = self._local_ports.get(remote_port)
        try:
            if local_port is None:
                raise ConnectionRefusedError
            client = socket.create_connection((_LOOPBACK, local_port), timeout=10)
        except OSError:
            channel.close()  # all that a client of a port can be told
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
