"""Microcontrollers of a host whose farm has joined this one. That host's edgekit holds and opens
the line, and writes the firmware with the tools that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from edgekit.base.decode import decode_json
from edgekit.base.errors import DeviceError
from edgekit.base.events import Events
from edgekit.base.files import storage_errors
from edgekit.base.wording import size
from edgekit.devices.flash.job import FlashJob
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.hostkeys import Ask
from edgekit.devices.linux.joined_host import GateAnswer
from edgekit.devices.linux.remote_command import RemoteCommand
from edgekit.devices.serial.lab_host import ChannelPort, ended_after
from edgekit.project.devices import JoinedEntry, SshEntry

OPEN, BLANK, WRITE = "open", "blank", "write"
"""The orders of the line's gate."""
LONGEST_FIRMWARE = 256 << 20
_SECONDS_TO_ANSWER = 30.0
_SECONDS_TO_SEND = 60.0
_SECONDS_TO_WRITE = 600.0


@dataclass(frozen=True)
class JoinedLineHost:
    """The joined host that has the microcontroller."""

    joined: JoinedEntry

    @property
    def entry(self) -> SshEntry:
        return self.joined.host

    @contextmanager
    def connected(
        self, ask: Ask | None = None, fingerprint: str | None = None
    ) -> Iterator[JoinedHost]:
        with connect(self.joined, ask=ask, fingerprint=fingerprint) as connection:
            yield JoinedHost(self.joined, connection)

    @contextmanager
    def held(
        self, address: str, patience: float = 0.0, *, looking: bool = False
    ) -> Iterator[JoinedLine]:
        with self.connected() as host, host.held(address, patience, looking=looking) as line:
            yield line


@dataclass(frozen=True)
class JoinedHost:
    """A connection to that host, whose gate holds the line for as long as it lasts."""

    entry: JoinedEntry
    connection: Connection

    @contextmanager
    def held(
        self, address: str, patience: float = 0.0, *, looking: bool = False
    ) -> Iterator[JoinedLine]:
        yield JoinedLine(self.entry, self.connection)


@dataclass(frozen=True)
class JoinedLine:
    entry: JoinedEntry
    connection: Connection

    def is_blank(self) -> bool:
        with self.connection.command((BLANK,)) as command:
            return self._answer(command).blank

    def write(self, job: FlashJob, events: Events) -> int:
        with storage_errors("read the firmware", job.firmware.path):
            data = job.firmware.path.read_bytes()
        with (
            events.stage(f"write the firmware to {job.device}") as stage,
            self.connection.command((WRITE, str(len(data)))) as command,
        ):
            command.send(data, _SECONDS_TO_SEND)
            written = self._answer(command, _SECONDS_TO_WRITE).written
            if written is None:
                raise self._invalid()
            stage.result = size(written)
        return written

    @contextmanager
    def opened(self, baud: int) -> Iterator[Any]:
        """Open the port at the baud rate that its host has for it."""
        with self.connection.command((OPEN,)) as command:
            self._answer(command)
            with ended_after(command):
                yield ChannelPort(command, str(self.entry.address))

    def _answer(self, command: RemoteCommand, seconds: float = _SECONDS_TO_ANSWER) -> GateAnswer:
        try:
            answer = decode_json(GateAnswer, command.read_line(seconds), ignore_unknown=True)
        except ValueError as error:
            raise self._invalid() from error
        if answer.error is not None:
            said = f"{self.entry.host.name} says: {answer.error}"
            raise DeviceError(said, hint=answer.hint or "see that host")
        return answer

    def _invalid(self) -> DeviceError:
        return DeviceError(
            f"the answer of {self.entry.host.name} is invalid",
            hint="install the same edgekit on both hosts",
        )
