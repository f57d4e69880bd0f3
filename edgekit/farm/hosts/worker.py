"""Another host's farm: a process that is connected to it until it is lost, and says so in lines of
JSON. The keeper starts one for each host that joined; it dies with its keeper.

One SSH connection carries everything: a gate over there that speaks with that farm's keeper, and
the sessions of those who were given one of its devices here.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import DeviceError
from edgekit.base.json_reader import read_json
from edgekit.farm.control import LONGEST_LINE
from edgekit.farm.hosts.file import FarmHost, find_host, known_hosts_of_farm
from edgekit.farm.hosts.stand_in import StandIn
from edgekit.farm.lines import read_lines
from edgekit.farm.status import FarmStatus, status_from
from edgekit.farm.worker import Say, end_with_keeper, reported
from edgekit.rpc.protocol import LOOPBACK, TrackerAddress, parse_tracker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

SECONDS_BETWEEN_NEWS = 0.5
_SECONDS_TO_START = 30.0
_SECONDS_OF_SILENCE = 20.0
_SECONDS_TO_SEND = 20.0
_MOST_DEVICES = 1000
_MOST_LINES = 200
"""Of what the host's start-up files may say before the gate does."""
_NEWS = 0
"""The number of our own questions; the keeper's begin with 1."""
_SCRIPT = """\
PATH=$PATH:$HOME/.local/bin:/usr/local/bin; export PATH
command -v "$1" >/dev/null 2>&1 || { echo edgekit none; exit 127; }
exec "$1" farm gate"""


def main() -> None:
    name, tracker_port = sys.argv[1:]
    with reported() as say:
        host = find_host(name, known_hosts_of_farm())
        with connected(host) as (connection, gate):
            _Joined(host, connection, gate, TrackerAddress(LOOPBACK, int(tracker_port)), say).run()


@contextmanager
def connected(host: FarmHost, **trust: Any) -> Iterator[tuple[Connection, RemoteCommand]]:
    """Logged in, with edgekit's gate open over there."""
    from edgekit.devices.linux.connection import connect

    with connect(host.entry, **trust) as connection:
        words = ("sh", "-c", _SCRIPT, "edgekit", host.program or "edgekit")
        with connection.command(words, title="edgekit farm gate") as gate:
            for _ in range(_MOST_LINES):
                line = gate.read_line(_SECONDS_TO_START)
                if line.startswith('{"gate"'):
                    yield connection, gate
                    return
                if line == "edgekit none":
                    raise DeviceError(
                        f"{host.program or 'edgekit'} is not to be found on {host.name}",
                        hint="install it there, and name it: edgekit farm join --edgekit PROGRAM",
                    )
            raise DeviceError(
                f"{host.name} says much, and nothing of a farm",
                hint="what its shell runs at the start should write nothing",
            )


def first_news(gate: RemoteCommand, host: FarmHost) -> FarmStatus:
    """What the farm over there says of itself; DeviceError where none is up."""
    _send(gate, {"id": _NEWS, "request": {"do": "status"}})
    while True:
        message = _understood(gate.read_line(_SECONDS_OF_SILENCE), host)
        if message.get("id") == _NEWS and "answer" in message:
            return news_of(message["answer"], host)


def news_of(answer: Mapping[str, Any], host: FarmHost) -> FarmStatus:
    if "error" in answer:
        raise DeviceError(
            f"{host.name} says: {str(answer['error'])[:200]}",
            hint="edgekit farm up over there, or edgekit farm install",
        )
    return status_from(answer)


def _understood(line: str, host: FarmHost) -> dict[str, Any]:
    try:
        message = read_json(line)
        if not isinstance(message, dict):
            raise TypeError("no object")
    except (ValueError, TypeError, RecursionError) as error:
        raise DeviceError(
            f"what {host.name} says makes no sense", hint="install the same edgekit on both hosts"
        ) from error
    return message


def _send(gate: RemoteCommand, document: Mapping[str, object]) -> None:
    gate.send(json.dumps(document).encode() + b"\n", _SECONDS_TO_SEND)


class _Joined:
    def __init__(
        self,
        host: FarmHost,
        connection: Connection,
        gate: RemoteCommand,
        tracker: TrackerAddress,
        say: Say,
    ) -> None:
        self._host = host
        self._connection = connection
        self._gate = gate
        self._tracker = tracker
        self._say = say
        self._stand_ins: dict[str, StandIn] = {}
        self._tracker_there: tuple[str, int] = ("", 0)
        """Its address over there, and the port here that leads to it."""
        self._sending = threading.Lock()

    def run(self) -> None:
        """Until the host is lost, which raises DeviceError."""
        over = threading.Event()
        for work in (self._ask_for_news, self._hear_keeper):
            threading.Thread(target=work, args=(over,), daemon=True).start()
        with ExitStack() as closing:
            closing.callback(over.set)
            closing.callback(self._close)
            while True:
                line = self._gate.next_line(_SECONDS_OF_SILENCE)
                if line is None:
                    raise DeviceError(
                        f"the gate of {self._host.name} was closed", hint="see that host's log"
                    )
                self._take(line)

    def _take(self, line: str) -> None:
        message = _understood(line, self._host)
        if message.get("id") != _NEWS:
            self._say(message)
        elif "answer" in message:
            self._news(news_of(message["answer"], self._host), message["answer"])

    def _news(self, status: FarmStatus, document: Mapping[str, Any]) -> None:
        if status.tracker != self._tracker_there[0]:
            port = parse_tracker(str(status.tracker)).port
            forwarded = self._connection.forward(port, refused=self._refused)
            self._tracker_there = (status.tracker, forwarded)
        # Its own devices alone: two hosts that join each other must not go round in circles.
        theirs = {d.name: d for d in status.devices[:_MOST_DEVICES] if not d.host}
        for name in set(self._stand_ins) - {n for n, d in theirs.items() if d.key}:
            self._stand_ins.pop(name).close()
        for name, device in theirs.items():
            if device.key and name not in self._stand_ins:
                self._stand_ins[name] = StandIn(
                    device.key, self._tracker, self._there, self._connection, self._refused
                )
            if device.key:
                self._stand_ins[name].device_is_free(device.state == "free")
        ports = {name: stand_in.port for name, stand_in in self._stand_ins.items()}
        self._say({"state": "news", "status": document, "ports": ports})

    def _refused(self, reason: str) -> None:
        self._say({"state": "refused", "detail": reason})

    def _there(self) -> TrackerAddress:
        return TrackerAddress(LOOPBACK, self._tracker_there[1])

    def _ask_for_news(self, over: threading.Event) -> None:
        try:
            while not over.wait(SECONDS_BETWEEN_NEWS):
                self._send({"id": _NEWS, "request": {"do": "status"}})
        except DeviceError:
            return  # whoever listens on the same connection says why

    def _hear_keeper(self, over: threading.Event) -> None:
        for line in read_lines(0, None, LONGEST_LINE):
            message = read_json(line)
            if message.get("request", {}).get("do") == "lease":
                known = self._as_known_over_there(message)
                if known is None:
                    refusal = {"error": "that session is over already", "hint": ""}
                    self._say({"id": message["id"], "answer": refusal})
                    self._say({"id": message["id"], "over": True})
                    continue
                message = known
            try:
                self._send(message)
            except DeviceError:
                return
        end_with_keeper()

    def _as_known_over_there(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """A lease names the port and the offer that the client was given here."""
        request = message["request"]
        for stand_in in self._stand_ins.values():
            session = stand_in.session_of(str(request.get("offer", "")))
            if session is not None:
                there = {**request, "port": session.port, "offer": session.offer}
                return {**message, "request": there}
        return None

    def _send(self, document: Mapping[str, object]) -> None:
        with self._sending:
            _send(self._gate, document)

    def _close(self) -> None:
        for stand_in in self._stand_ins.values():
            stand_in.close()


if __name__ == "__main__":
    main()
