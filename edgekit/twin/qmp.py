"""QMP, QEMU's control channel: one JSON object per line over a Unix socket."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.decode import decode_json
from edgekit.base.errors import DeviceError
from edgekit.base.unix_sockets import reachable

_LONGEST_ANSWER = 1 << 20
_RETRY_SECONDS = 0.05


class QmpError(DeviceError):
    """QEMU does not answer, or refuses a command."""


@dataclass(frozen=True)
class _Refusal:
    desc: str


@dataclass(frozen=True)
class _Message:
    """An answer; an event or the greeting has neither field."""

    error: _Refusal | None = None
    returned: Mapping[str, object] | None = field(default=None, metadata={"key": "return"})


class Qmp:
    """A connection to one emulator."""

    def __init__(self, connection: socket.socket, limit_s: float) -> None:
        self._connection = connection
        self._limit_s = limit_s
        self._unread = b""

    def execute(self, command: str, **arguments: object) -> Mapping[str, object]:
        """Execute a command and return its answer; skip events."""
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise _silent(str(error)) from error
        ends_at = time.monotonic() + self._limit_s
        while True:
            answer = self.message(ends_at)
            if answer.error is not None:
                raise QmpError(
                    f"the emulator refuses {command}: {answer.error.desc}",
                    hint="edgekit twin down, then up, starts it again",
                )
            if answer.returned is not None:
                return answer.returned

    def message(self, ends_at: float) -> _Message:
        """Read the next message."""
        while b"\n" not in self._unread:
            if len(self._unread) > _LONGEST_ANSWER:
                raise _silent("its answer has no end")
            try:
                self._connection.settimeout(max(ends_at - time.monotonic(), 0.001))
                received = self._connection.recv(1 << 16)
            except OSError as error:
                raise _silent(str(error)) from error
            if not received:
                raise _silent("it hung up")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return decode_json(_Message, line, ignore_unknown=True)
        except ValueError as error:
            raise _silent(f"it does not speak QMP: {error}") from error


@contextmanager
def connected(path: Path, limit_s: float = 5.0) -> Iterator[Qmp]:
    """Connect. QEMU serves one client at a time; others wait up to `limit_s`."""
    ends_at = time.monotonic() + limit_s
    with _connection(path, ends_at) as connection:
        qmp = Qmp(connection, limit_s)
        qmp.message(ends_at)  # the greeting
        qmp.execute("qmp_capabilities")
        yield qmp


def _connection(path: Path, ends_at: float) -> socket.socket:
    """Connect, and retry while a new QEMU does not listen yet."""
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(max(ends_at - time.monotonic(), 0.001))
            with reachable(path) as name:
                connection.connect(name)
            return connection
        except OSError as error:
            connection.close()
            not_yet = isinstance(error, FileNotFoundError | ConnectionRefusedError)
            if not not_yet or time.monotonic() > ends_at:
                raise _silent(str(error)) from error
        except BaseException:
            connection.close()
            raise
        time.sleep(_RETRY_SECONDS)


def _silent(reason: str) -> QmpError:
    return QmpError(
        f"the emulator does not answer: {reason}",
        hint="edgekit twin status shows whether it runs; twin down, then up, starts it again",
    )
