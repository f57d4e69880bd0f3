"""The program that another host runs through SSH, as `edgekit farm gate --device NAME`, to use a
device of this host: it speaks SSH on its input and output. For a board with Linux it opens each
channel again on its own connection to the board; a microcontroller's line is `line_gate.py`. The
login to this host has decided that the caller is this user.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import paramiko
from paramiko import Channel

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.devices.keeper_client import ask
from edgekit.devices.keeper_messages import Request
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.handshake import WatchedSocket
from edgekit.devices.linux.hostkeys import KnownHosts, fingerprint_of
from edgekit.devices.linux.joined_host import announcement
from edgekit.farm.control import refusal
from edgekit.farm.hosts.line_gate import OPENED, GateServer, LineServer, in_thread
from edgekit.farm.worker import device_named
from edgekit.project.devices import PlaceEntry, SshEntry

SECONDS_OF_SILENCE = 30.0
"""The silence after which the caller counts as gone; it asks for a sign of life every 5 s."""
_BLOCK = 1 << 16
_NOT_CONNECTED: int = paramiko.common.OPEN_FAILED_CONNECT_FAILED
_SECONDS_BETWEEN_LOOKS = 0.2


def serve_device(name: str, receive: int, send: int) -> None:
    """Serve until the caller's input ends or stays silent."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    with ExitStack() as held:
        try:
            found = ask(Request("entry", name))
            server: GateServer
            if found["is_line"]:
                device = device_named(name, str(found.get("project", "")))
                server = LineServer(device.line(), held.enter_context(device.line().held()))
            else:
                server = _BoardServer(held.enter_context(_connected(name, found["entry"])))
        except EdgekitError as error:
            os.write(send, announcement(refusal(error)))
            return
        key = paramiko.ECDSAKey.generate()
        os.write(send, announcement({"key": fingerprint_of(key)}))
        ours, theirs = socket.socketpair()
        in_thread(lambda: _read(receive, ours))
        in_thread(lambda: _write(ours, send))
        watched = WatchedSocket(theirs)
        transport = paramiko.Transport(watched)
        transport.daemon = True
        transport.add_server_key(key)
        transport.start_server(server=server)
        while transport.is_active() and server.is_alive():
            if time.monotonic() - watched.last_heard > SECONDS_OF_SILENCE:
                break
            channel = transport.accept(_SECONDS_BETWEEN_LOOKS)
            onward = server.ports.pop(channel.chanid, None) if channel is not None else None
            if channel is not None and onward is not None:
                in_thread(partial(_serve_port, channel, onward))
        transport.close()


def _connected(name: str, entry: Mapping[str, Any]) -> Connection:
    """Log in to a board of this host's farm as the farm does."""
    board = str(entry["board"])
    if entry.get("twin"):
        from edgekit.twin.machine import status

        access = status(name).access
        if access is None:
            raise DeviceError(f"the twin {name} does not run", hint="start it: edgekit twin up")
        known = KnownHosts(access.known_hosts, access.known_hosts)
        login = SshEntry(name, board, access.host, access.user, access.port, str(access.key))
        return connect(login, known_hosts=known)
    keys = ("host", "user", "port", "key", "proxy", "directory")
    login = SshEntry(name, board, *(entry.get(key) for key in keys))
    if entry.get("labgrid"):
        return connect(PlaceEntry(name, board, place=str(entry["labgrid"]), login=login))
    return connect(login)


class _BoardServer(GateServer):
    """Opens the caller's channels again on the connection to the board."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def is_alive(self) -> bool:
        return self._connection.is_alive()

    def check_channel_exec_request(self, channel: Channel, command: bytes) -> bool:
        try:
            onward = self._connection.open_channel("session")
            with self._connection.lost_explained():
                onward.exec_command(command)
        except DeviceError:
            return False
        in_thread(lambda: _serve_command(channel, onward))
        return True

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        try:
            self.ports[chanid] = self._connection.open_channel("direct-tcpip", destination)
        except DeviceError:
            return _NOT_CONNECTED
        return OPENED


def _serve_command(channel: Channel, onward: Channel) -> None:
    in_thread(lambda: _feed(channel, onward))
    errors = in_thread(lambda: _copy(onward.recv_stderr, channel.sendall_stderr))
    _copy(onward.recv, channel.sendall)
    errors.join()
    with suppress(OSError, EOFError):
        channel.shutdown_write()
        status = onward.recv_exit_status()
        if status >= 0:
            channel.send_exit_status(status)
    channel.close()
    onward.close()


def _serve_port(channel: Channel, onward: Channel) -> None:
    in_thread(lambda: _feed(channel, onward))
    _copy(onward.recv, channel.sendall)
    with suppress(OSError, EOFError):
        channel.shutdown_write()
    if onward.closed:
        channel.close()


def _feed(channel: Channel, onward: Channel) -> None:
    """Pass on the caller's input and its end; close the board's side when the caller closes."""
    _copy(channel.recv, onward.sendall)
    with suppress(OSError, EOFError):
        onward.shutdown_write()
    while not channel.closed and not onward.closed:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    onward.close()
    channel.close()


def _copy(receive: Callable[[int], bytes], send: Callable[[bytes], object]) -> None:
    with suppress(OSError, EOFError):
        while data := receive(_BLOCK):
            send(data)


def _read(receive: int, ours: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(receive, _BLOCK):
            ours.sendall(data)
    with suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)


def _write(ours: socket.socket, send: int) -> None:
    with suppress(OSError):
        while data := ours.recv(_BLOCK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(send, rest) :]
