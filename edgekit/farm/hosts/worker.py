"""The process that is connected to a joined host until the host is lost, and reports in lines of
JSON. The keeper starts one for each host; it dies with its keeper.

One SSH connection carries everything: a relay on the host that talks to its keeper, and the
sessions of this farm's clients on its devices.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from edgekit.base.decode import decode_json, encode
from edgekit.base.errors import DeviceError
from edgekit.devices.keeper_messages import FarmStatus, FromRelay, Request, ToRelay, status_from
from edgekit.devices.linux.connection import Connection
from edgekit.devices.linux.remote_command import CommandEnded, RemoteCommand
from edgekit.farm.control import read_lines
from edgekit.farm.hosts.file import FarmHost, find_host, known_hosts_of_farm
from edgekit.farm.hosts.forwarded_device import ForwardedDevice
from edgekit.farm.worker import Say, end_with_keeper, reported
from edgekit.rpc.protocol import LOOPBACK, TrackerAddress, parse_tracker
from edgekit.version import __version__

SECONDS_BETWEEN_NEWS = 0.5
_SECONDS_TO_START = 30.0
_SECONDS_OF_SILENCE = 20.0
_SECONDS_TO_SEND = 20.0
_MOST_DEVICES = 1000
_MOST_LINES = 200
"""The lines that the host's shell may print before the relay starts."""
_NEWS = 0
"""The ID of this process's own requests; the keeper's begin with 1."""
_QUESTION = ToRelay(_NEWS, encode(Request("status")))
_SCRIPT = """\
PATH=$PATH:$HOME/.local/bin:/usr/local/bin; export PATH
case "$1" in */*)
  [ ! -e "$1" ] || { [ -f "$1" ] && [ -x "$1" ]; } || { echo edgekit denied; exit 126; };;
esac
command -v "$1" >/dev/null 2>&1 || { echo edgekit none; exit 127; }
exec "$1" farm gate"""


def main() -> None:
    name, tracker_port = sys.argv[1:]
    with reported() as say:
        host = find_host(name, known_hosts_of_farm())
        with connected(host) as (connection, relay):
            _HostClient(
                host, connection, relay, TrackerAddress(LOOPBACK, int(tracker_port)), say
            ).run()


@contextmanager
def connected(host: FarmHost, **trust: Any) -> Iterator[tuple[Connection, RemoteCommand]]:
    """Log in and start the relay on the host."""
    from edgekit.devices.linux.connection import connect

    with connect(host.entry, **trust) as connection:
        words = ("sh", "-c", _SCRIPT, "edgekit", host.program or "edgekit")
        with connection.command(words, title="edgekit farm gate") as relay:
            _wait_for_gate(relay, host)
            yield connection, relay


def _wait_for_gate(relay: RemoteCommand, host: FarmHost) -> None:
    program = host.program or "edgekit"
    try:
        for _ in range(_MOST_LINES):
            line = relay.read_line(_SECONDS_TO_START)
            if line.startswith('{"gate"'):
                return
            if line == "edgekit none":
                raise DeviceError(
                    f"{program} was not found on {host.name}",
                    hint=f"install edgekit on {host.name}, and name its path: "
                    "edgekit farm join --edgekit PROGRAM",
                )
            if line == "edgekit denied":
                raise DeviceError(
                    f"{program} on {host.name} may not be run by the user who logs in, or is not a "
                    "program",
                    hint=f"check it on {host.name}: ls -l {program}; --edgekit names another one",
                )
    except CommandEnded as error:
        last = relay.errors()
        raise DeviceError(
            f"{program} on {host.name} ended before it answered"
            + (f": {last[-1]}" if last else ""),
            hint=f"run `{program} farm status` on {host.name}; it needs edgekit {__version__}, as "
            "this host has",
            details=last[-12:-1],
        ) from error
    raise DeviceError(
        f"the shell of {host.name} prints too much before edgekit starts",
        hint="make its start-up files print nothing",
    )


def first_news(relay: RemoteCommand, host: FarmHost) -> FarmStatus:
    """Ask for the status of the host's farm; DeviceError if none is up."""
    _send(relay, _QUESTION)
    while True:
        message = _understood(relay.read_line(_SECONDS_OF_SILENCE), host)
        if message.id == _NEWS and message.answer is not None:
            return news_of(message.answer, host)


def news_of(answer: Mapping[str, Any], host: FarmHost) -> FarmStatus:
    if "error" in answer:
        raise DeviceError(
            f"{host.name} says: {str(answer['error'])[:200]}",
            hint=f"run edgekit farm up or edgekit farm install on {host.name}",
        )
    try:
        return status_from(answer)
    except DeviceError as error:
        raise DeviceError(
            f"the status of {host.name} is not understood: {error.message}",
            hint=f"install edgekit {__version__}, which this host has, on {host.name}",
        ) from error


def _understood(line: str, host: FarmHost) -> FromRelay:
    try:
        return decode_json(FromRelay, line, ignore_unknown=True)
    except ValueError as error:
        raise DeviceError(
            f"the answer of {host.name} is invalid", hint="install the same edgekit on both hosts"
        ) from error


def _send(relay: RemoteCommand, message: ToRelay) -> None:
    relay.send(json.dumps(encode(message)).encode() + b"\n", _SECONDS_TO_SEND)


class _HostClient:
    def __init__(
        self,
        host: FarmHost,
        connection: Connection,
        relay: RemoteCommand,
        tracker: TrackerAddress,
        say: Say,
    ) -> None:
        self._host = host
        self._connection = connection
        self._relay = relay
        self._tracker = tracker
        self._say = say
        self._forwarded: dict[str, ForwardedDevice] = {}
        self._remote_tracker: tuple[str, int] = ("", 0)
        """The tracker's address on the host, and the port of this host that leads to it."""
        self._sending = threading.Lock()

    def run(self) -> None:
        """Run until the host is lost, which raises DeviceError."""
        over = threading.Event()
        for work in (self._ask_for_news, self._hear_keeper):
            threading.Thread(target=work, args=(over,), daemon=True).start()
        with ExitStack() as closing:
            closing.callback(over.set)
            closing.callback(self._close)
            while True:
                line = self._relay.next_line(_SECONDS_OF_SILENCE)
                if line is None:
                    raise DeviceError(
                        f"edgekit farm gate on {self._host.name} has ended",
                        hint="see that host's log",
                    )
                self._take(line)

    def _take(self, line: str) -> None:
        message = _understood(line, self._host)
        if message.id != _NEWS:
            self._say(encode(message))
        elif message.answer is not None:
            self._news(news_of(message.answer, self._host), message.answer)

    def _news(self, status: FarmStatus, document: Mapping[str, Any]) -> None:
        if status.tracker != self._remote_tracker[0]:
            port = parse_tracker(str(status.tracker)).port
            forwarded = self._connection.forward(port, refused=self._refused)
            self._remote_tracker = (status.tracker, forwarded)
        # Its own devices only: two hosts may have joined each other.
        devices = {d.name: d for d in status.devices[:_MOST_DEVICES] if not d.host}
        for name in set(self._forwarded) - {n for n, d in devices.items() if d.key}:
            self._forwarded.pop(name).close()
        for name, device in devices.items():
            if device.key and name not in self._forwarded:
                self._forwarded[name] = ForwardedDevice(
                    device.key,
                    self._tracker,
                    self._remote_tracker_address,
                    self._connection,
                    self._refused,
                )
            if device.key:
                self._forwarded[name].device_is_free(device.state == "free")
        ports = {name: device.port for name, device in self._forwarded.items()}
        self._say({"state": "news", "status": document, "ports": ports})

    def _refused(self, reason: str) -> None:
        self._say({"state": "refused", "detail": reason})

    def _remote_tracker_address(self) -> TrackerAddress:
        return TrackerAddress(LOOPBACK, self._remote_tracker[1])

    def _ask_for_news(self, over: threading.Event) -> None:
        try:
            while not over.wait(SECONDS_BETWEEN_NEWS):
                self._send(_QUESTION)
        except DeviceError:
            return  # the reader of the same connection reports why

    def _hear_keeper(self, over: threading.Event) -> None:
        for line in read_lines(0):
            message = decode_json(ToRelay, line)
            if message.request is not None and message.request.get("do") == "lease":
                lease = self._as_remote_lease(message.request)
                if lease is None:
                    refusal = {"error": "that session has ended already", "hint": ""}
                    self._say(encode(FromRelay(message.id, refusal)))
                    self._say(encode(FromRelay(message.id, over=True)))
                    continue
                message = ToRelay(message.id, lease)
            try:
                self._send(message)
            except DeviceError:
                return
        end_with_keeper()

    def _as_remote_lease(self, request: Mapping[str, object]) -> Mapping[str, object] | None:
        """Replace the port and offer of this farm in a lease by those of the remote session."""
        for device in self._forwarded.values():
            session = device.session_of(str(request.get("offer", "")))
            if session is not None:
                return {**request, "port": session.port, "offer": session.offer}
        return None

    def _send(self, message: ToRelay) -> None:
        with self._sending:
            _send(self._relay, message)

    def _close(self) -> None:
        for device in self._forwarded.values():
            device.close()


if __name__ == "__main__":
    main()
