"""A command that runs on a device: its output line by line, its end, and how it is ended."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from edgekit.base.errors import DeviceError
from edgekit.base.options import option
from edgekit.devices.linux.signs_of_life import BEAT, LISTEN

if TYPE_CHECKING:
    from paramiko import Channel

_LONGEST_LINE = 8 << 20
_BLOCK = 1 << 16
_SECONDS_BETWEEN_LOOKS = 0.25
_KEPT_STDERR_LINES = 100
_LONGEST_STDERR_LINE = 2000

# Without a terminal, an SSH server leaves a command running when its client is gone. So a guard
# listens for signs of life on its own input, and kills the command and its children when the input
# ends or falls silent.
GUARDED = f"""\
{LISTEN}
ended() {{ kill -9 -$p || kill -9 $p; }}
exec 3<&0
if command -v setsid >/dev/null 2>&1; then setsid "$@" </dev/null 3<&- &
else "$@" </dev/null 3<&- & fi
p=$!
{{ exec <&3 3<&- >/dev/null 2>&1; listen; }} &
w=$!
exec 3<&-
wait $p
s=$?
kill $w 2>/dev/null"""
"""Shell text that runs its words under the guard, and leaves their exit code in `s`."""


@dataclass(frozen=True)
class Finished:
    """The end of a command. `status` is 128 plus the number of the signal that ended it."""

    status: int
    output: str
    """Output on stdout; empty if a caller read it line by line."""
    errors: tuple[str, ...]
    """Last lines on stderr."""

    @property
    def signal(self) -> int | None:
        return self.status - 128 if 128 < self.status < 128 + 65 else None


def guarded(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command that ends with its connection. Start it as one that listens."""
    return ("sh", "-c", f"{GUARDED}\nexit $s", "edgekit", *words)


class CommandLink(Protocol):
    """The connection that a command runs through."""

    name: str
    """The device's name, for messages."""

    def is_alive(self) -> bool:
        """Tell whether the connection still stands."""
        ...

    def lost(self) -> DeviceError:
        """Return the error for a connection that no longer stands."""
        ...

    def lost_explained(self) -> AbstractContextManager[None]:
        """Turn what paramiko raises in the block into that error."""
        ...


class RemoteCommand:
    """A running command, made and ended by `Connection.command`."""

    def __init__(self, connection: CommandLink, channel: Channel, title: str) -> None:
        self._connection = connection
        self._channel = channel
        self._title = title
        self._buffer = bytearray()
        self._errors: deque[str] = deque(maxlen=_KEPT_STDERR_LINES)
        self._sending = threading.RLock()
        channel.settimeout(_SECONDS_BETWEEN_LOOKS)
        self._error_reader = threading.Thread(target=self._keep_errors, daemon=True)
        self._error_reader.start()

    @contextmanager
    def one_message(self) -> Iterator[None]:
        """Send what the block sends as one message, without a sign of life in between."""
        with self._sending:
            yield

    def beat(self) -> None:
        """Send a sign of life, unless a message is being sent, which is one."""
        from paramiko import SSHException

        if self._sending.acquire(blocking=False):
            try:
                self._channel.send(BEAT)
            except (TimeoutError, SSHException, EOFError, OSError):
                pass  # the command's user gets the error of a lost connection
            finally:
                self._sending.release()

    def send(self, data: memoryview | bytes, silence: float) -> None:
        """Feed the command; DeviceError if it takes nothing for `silence` seconds."""
        with self._sending:
            self._send(data, silence)

    def _send(self, data: memoryview | bytes, silence: float) -> None:
        from paramiko import SSHException

        rest = memoryview(data)
        since = time.monotonic()
        while rest:
            try:
                sent = self._channel.send(rest[:_BLOCK])
            except TimeoutError:
                self._check_silence(since, silence)
                continue
            except (SSHException, EOFError, OSError) as error:
                raise self._ended_early() from error
            if sent == 0:
                raise self._ended_early()
            rest = rest[sent:]
            since = time.monotonic()

    def end_input(self) -> None:
        with self._connection.lost_explained():
            self._channel.shutdown_write()

    def read_line(self, timeout: float) -> str:
        """Return the next line of its output; DeviceError if it ends without one."""
        line = self._next_line(time.monotonic() + timeout, None)
        if line is None:
            raise self._ended_early()
        return line

    def next_line(self, silence: float) -> str | None:
        """Return the next line of its output, or None at its end, within `silence` seconds."""
        return self._next_line(None, silence)

    def read_exactly(self, size: int, silence: float) -> bytes:
        since = time.monotonic()
        while len(self._buffer) < size:
            try:
                data = self._channel.recv(_BLOCK)
            except TimeoutError:
                self._check_silence(since, silence)
                continue
            if not data:
                raise self._ended_early()
            self._buffer += data
            since = time.monotonic()
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    @property
    def waiting(self) -> int:
        """Number of bytes that have arrived already."""
        return len(self._buffer)

    def read_some(self, most: int) -> bytes:
        """Return the bytes that are available or come within a moment; else none."""
        if not self._buffer:
            try:
                data = self._channel.recv(_BLOCK)
            except TimeoutError:
                return b""
            if not data:
                raise self._ended_early()
            self._buffer += data
        found = bytes(self._buffer[:most])
        del self._buffer[:most]
        return found

    def finish(
        self,
        timeout: float | None = None,
        silence: float | None = None,
        on_line: Callable[[str], None] | None = None,
        most_output: int = 1 << 20,
    ) -> Finished:
        """Wait for the command's end; see `Connection.run`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        kept: list[str] = []
        size = 0
        while (line := self._next_line(deadline, silence)) is not None:
            if on_line is not None:
                on_line(line)
                continue
            size += len(line) + 1
            if size > most_output:
                raise self._flooded()
            kept.append(line)
        return self._end(deadline, "\n".join(kept))

    def errors(self) -> tuple[str, ...]:
        return tuple(line for line in self._errors if line.strip())

    def _end(self, deadline: float | None, output: str) -> Finished:
        while not self._channel.status_event.wait(_SECONDS_BETWEEN_LOOKS):
            if deadline is not None and time.monotonic() > deadline:
                raise self._timed_out()
        self._error_reader.join(timeout=5)
        status = self._channel.recv_exit_status()
        if status < 0:
            if self._connection_is_gone():
                raise self._connection.lost()
            raise CommandEnded(
                f"{self._title} on {self._connection.name} was killed from outside",
                hint="check the device: its memory, its system's log, who else uses it",
                details=self.errors()[-12:],
            )
        return Finished(status, output, self.errors())

    def _next_line(self, deadline: float | None, silence: float | None) -> str | None:
        since = time.monotonic()
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = self._buffer[:end]
                del self._buffer[: end + 1]
                return line.decode(errors="replace")
            searched = len(self._buffer)
            if searched > _LONGEST_LINE:
                raise self._flooded()
            if deadline is not None and time.monotonic() > deadline:
                raise self._timed_out()
            try:
                data = self._channel.recv(_BLOCK)
            except TimeoutError:
                if silence is not None:
                    self._check_silence(since, silence)
                continue
            if not data:
                rest = self._buffer.decode(errors="replace")
                self._buffer.clear()
                return rest or None
            self._buffer += data
            since = time.monotonic()

    def _keep_errors(self) -> None:
        rest = b""
        while True:
            try:
                data = self._channel.recv_stderr(_BLOCK)
            except TimeoutError:
                continue
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            self._errors.extend(_readable(line) for line in lines[-_KEPT_STDERR_LINES:])
            rest = rest[:_LONGEST_STDERR_LINE]
        if rest:
            self._errors.append(_readable(rest))

    def _check_silence(self, since: float, silence: float) -> None:
        if not self._connection.is_alive():
            raise self._connection.lost()
        if time.monotonic() - since > silence:
            raise CommandTimeout(
                f"{self._title} on {self._connection.name} gave no sign of life for {silence:g} s",
                hint=f"give it longer with {option('timeout')}, or check whether the device is "
                "overloaded",
                details=self.errors()[-12:],
            )

    def _timed_out(self) -> DeviceError:
        return CommandTimeout(
            f"{self._title} on {self._connection.name} did not end in time",
            hint=f"give it longer with {option('timeout')}, or check whether the device is "
            "overloaded",
            details=self.errors()[-12:],
        )

    def _flooded(self) -> DeviceError:
        return DeviceError(
            f"{self._title} on {self._connection.name} wrote more output than edgekit accepts",
            hint="check which program runs on the device",
        )

    def _ended_early(self) -> DeviceError:
        self._channel.status_event.wait(2)
        if self._connection_is_gone():
            return self._connection.lost()
        self._error_reader.join(timeout=2)
        errors = self.errors()
        why = f": {errors[-1]}" if errors else ""
        return CommandEnded(
            f"{self._title} on {self._connection.name} ended early{why}",
            hint="check the device: its disk, its memory, its system's log",
            details=errors[-12:-1],
        )

    def _connection_is_gone(self) -> bool:
        """Tell whether the connection ended. Its channels learn it a moment before it is marked
        itself."""
        patience = time.monotonic() + 1
        while self._channel.exit_status < 0 and time.monotonic() < patience:
            if not self._connection.is_alive():
                return True
            time.sleep(0.02)
        return not self._connection.is_alive()


class CommandEnded(DeviceError):
    """The error for a command that ended while it was still to be fed, or to answer."""


class CommandTimeout(DeviceError):
    """The error for a command that ran out of time."""


def _readable(line: bytes) -> str:
    return line[:_LONGEST_STDERR_LINE].decode(errors="replace").rstrip()
