"""Microcontrollers attached to another machine. Their serial ports and flash tools are used through
one SSH connection to that machine, which needs a POSIX shell and no edgekit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.base.errors import DeviceError, MissingToolError
from edgekit.base.events import Events
from edgekit.base.files import storage_errors
from edgekit.base.options import option
from edgekit.devices.base import DeviceBusy
from edgekit.devices.flash.job import FlashJob
from edgekit.devices.flash.tool import Said
from edgekit.devices.flash.write import write_firmware
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.hostkeys import Ask, KnownHosts
from edgekit.devices.linux.remote_command import CommandEnded, RemoteCommand
from edgekit.devices.linux.signs_of_life import END_STREAMS, LISTEN
from edgekit.devices.serial.lock import MOST_FOR_LOOKS, PATIENCE
from edgekit.devices.serial.port import opened_port
from edgekit.project.devices import SshEntry

_SECONDS_TO_OPEN = 20.0
_SECONDS_TO_SEND = 60.0
_SECONDS_TO_END = 3.0
_FLASH_SECONDS = 300.0
_MOST_LINES = 200
"""Most lines of a host's start-up files before our shell's first line."""
_CONNECT_FAILED = 2
"""SSH's error number for a port without a listener."""
_SOCKET = re.compile(
    r"(?P<kind>socket|rfc2217)://(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]+)):(?P<port>\d+)"
)

# A lock file by the port's real name, which any user may lock and none needs to write, so that two
# users of one host keep apart too. It is made without following a link in its place. The second
# file is locked by checks: devices/serial/lock.py does the same on this machine.
_HOLD = (
    f"""\
LC_ALL=C; export LC_ALL
{LISTEN}
{END_STREAMS}
"""
    + """\
listener=$$
ended() { end_streams; }
command -v flock >/dev/null 2>&1 || { echo edgekit held; listen; exit; }
port=$(readlink -f "$1" 2>/dev/null) || port=$1
lock=/tmp/edgekit-serial-$(printf '%s' "$port" | tr -c 'A-Za-z0-9\\n' _)
for file in "$lock.lock" "$lock.look"; do
  ( umask 0; set -C; : >"$file" ) 2>/dev/null
  [ -f "$file" ] || { echo "$file is no file" >&2; exit 1; }
done
exec 9<"$lock.lock" 8<"$lock.look"
tries=$2 looks=$3
[ "$looks" -gt 0 ] || flock -s 8
until flock -n 9; do
  if [ "$looks" -gt 0 ] && ! flock -n 8; then
    looks=$((looks - 1)) tries=$2
  else
    flock -u 8
    [ "$tries" -gt 0 ] || { echo edgekit busy; exit; }
    tries=$((tries - 1))
  fi
  sleep 1
done
echo edgekit held
listen
"""
)

# The guard of the line waits for the end of its own input, which comes with the end of the
# connection, and then ends the reader. The shell has the port open and locked as well: when it has
# ended, the port is free.
_PUMP = """\
LC_ALL=C; export LC_ALL
port=$1
[ -e "$port" ] || { echo edgekit none; exit; }
[ -r "$port" ] && [ -w "$port" ] || { echo edgekit denied; exit; }
[ -c "$port" ] || { echo edgekit file; exit; }
exec 3<&0 4<>"$port"
if command -v flock >/dev/null 2>&1; then flock -n 4 || { echo edgekit busy; exit; }; fi
stty raw -echo -iexten -crtscts cs8 -parenb -cstopb clocal cread "$2" <&4 || {
  echo edgekit speed; exit; }
echo edgekit open
cat <&4 3<&- &
r=$!
{ cat <&3 >&4; kill -9 $r; } >/dev/null 2>&1 &
w=$!
exec 3<&- 4<&-
wait $r
{ kill $w; wait $w; } 2>/dev/null"""

# Deletes the file when the connection ends.
_KEEP_FILE = """\
umask 077
folder=$(mktemp -d) || exit 1
file=$folder/$1
head -c "$2" >"$file"
if [ "$(wc -c <"$file")" -eq "$2" ]; then echo "edgekit $file"; cat >/dev/null; fi
rm -rf "$folder\""""

_PATHS = "PATH=$PATH:$HOME/.local/bin:/usr/local/bin:/usr/sbin; export PATH\n"
_FIND = f'{_PATHS}command -v "$1"'
_RUN = f'{_PATHS}LC_ALL=C NO_COLOR=1; export LC_ALL NO_COLOR\ncd / && exec "$@" 2>&1'


class ChannelPort:
    """A stream of bytes through SSH with the interface of pyserial's ports."""

    def __init__(self, stream: RemoteCommand, address: str) -> None:
        self._stream = stream
        self._address = address

    @property
    def in_waiting(self) -> int:
        return self._stream.waiting

    def read(self, most: int) -> bytes:
        try:
            return self._stream.read_some(most)
        except CommandEnded as error:
            raise OSError(f"{self._address} is gone") from error

    def write(self, data: bytes) -> None:
        try:
            self._stream.send(data, _SECONDS_TO_SEND)
        except CommandEnded as error:
            raise OSError(f"{self._address} is gone") from error

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""


@dataclass(frozen=True)
class PortReport:
    """A serial port of another host that was checked."""

    name: str
    board: str
    port: str
    host: str

    @property
    def heading(self) -> str:
        return f"the serial port of {self.name} is ready"

    def facts(self) -> list[tuple[str, object]]:
        return [("board", self.board), ("serial port", self.port), ("on", self.host)]


@dataclass(frozen=True)
class LabHost:
    """The machine that has the serial port."""

    entry: SshEntry
    known_hosts: KnownHosts | None = None

    @contextmanager
    def connected(
        self, ask: Ask | None = None, fingerprint: str | None = None
    ) -> Iterator[RemoteHost]:
        with connect(
            self.entry, known_hosts=self.known_hosts, ask=ask, fingerprint=fingerprint
        ) as connection:
            yield RemoteHost(connection)

    @contextmanager
    def held(
        self, address: str, patience: float = PATIENCE, *, looking: bool = False
    ) -> Iterator[RemoteLine]:
        with self.connected() as host, host.held(address, patience, looking=looking) as line:
            yield line


@dataclass(frozen=True)
class RemoteHost:
    connection: Connection

    @property
    def machine(self) -> str:
        return self.connection.address

    @contextmanager
    def held(
        self, address: str, patience: float = PATIENCE, *, looking: bool = False
    ) -> Iterator[RemoteLine]:
        """Hold the line for the block against every other edgekit. `looking` is for a farm's
        checks, which give way to users."""
        limits = (0, 0) if looking else (round(patience), round(MOST_FOR_LOOKS))
        words = ("sh", "-c", _HOLD, "edgekit", address, *map(str, limits))
        with self.connection.command(words, listens=True) as holder:
            try:
                answer = _answer(holder)
            except CommandEnded as error:
                raise self._failed(address, holder) from error
            if answer != "held":
                raise DeviceBusy(
                    f"the serial port {address} of {self.machine} is in use by another edgekit",
                    hint="wait until it is done, or end it",
                )
            with ended_after(holder):
                yield RemoteLine(self, address)

    @contextmanager
    def opened(self, address: str, baud: int) -> Iterator[Any]:
        network = _SOCKET.fullmatch(address)
        if network is None:
            with self._terminal(address, baud) as port:
                yield port
        elif network["kind"] == "rfc2217":
            forwarded = self.connection.forward(
                int(network["port"]), network["v6"] or network["host"]
            )
            with opened_port(f"rfc2217://127.0.0.1:{forwarded}", baud) as port:
                yield port
        else:
            with self._socket(
                address, network["v6"] or network["host"], int(network["port"])
            ) as port:
                yield port

    @contextmanager
    def _terminal(self, address: str, baud: int) -> Iterator[ChannelPort]:
        words = ("sh", "-c", _PUMP, self.connection.stream_name, address, str(baud))
        with self.connection.command(words) as pump:
            try:
                answer = _answer(pump)
            except CommandEnded as error:
                raise self._failed(address, pump) from error
            if answer != "open":
                raise self._not_opened(address, baud, answer)
            with ended_after(pump):
                yield ChannelPort(pump, address)

    @contextmanager
    def _socket(self, address: str, host: str, port: int) -> Iterator[ChannelPort]:
        try:
            channel = self.connection.open_channel("direct-tcpip", (host, port))
        except DeviceError as error:
            if getattr(error.__cause__, "code", None) != _CONNECT_FAILED:
                raise
            raise DeviceError(
                f"nothing listens at {address}, as {self.machine} sees it",
                hint="start the server of the serial port",
            ) from error
        try:
            yield ChannelPort(RemoteCommand(self.connection, channel, address), address)
        finally:
            channel.close()

    def _not_opened(self, address: str, baud: int, why: str) -> DeviceError:
        place = f"the serial port {address} of {self.machine}"
        if why == "none":
            return DeviceError(
                f"there is no serial port {address} on {self.machine}",
                hint="plug the board in; ls /dev/serial/by-id on the host lists its ports",
            )
        if why == "denied":
            return DeviceError(
                f"{place} may not be opened by the user of the SSH login",
                hint="run on the host: sudo usermod -aG dialout USER",
            )
        if why == "busy":
            return DeviceBusy(
                f"{place} is in use by another program",
                hint=f"run fuser {address} on the host to see which process, and end it",
            )
        if why == "speed":
            return DeviceError(
                f"{place} can't be set to {baud} baud",
                hint=f"give a {option('baud')} that the host's stty knows",
            )
        return DeviceError(
            f"{place} is not a terminal", hint="name a device file such as /dev/ttyACM0"
        )

    def _failed(self, address: str, command: RemoteCommand) -> DeviceError:
        errors = command.errors()
        return DeviceError(
            f"the serial port {address} of {self.machine} can't be opened"
            + (f": {errors[-1]}" if errors else ""),
            hint="check that the host has a POSIX shell with stty",
            details=errors[-12:-1],
        )


@dataclass(frozen=True)
class RemoteLine:
    """A serial port of the host that is held."""

    host: RemoteHost
    address: str

    @property
    def tools(self) -> RemoteTools:
        return RemoteTools(self.host.connection)

    def is_blank(self) -> bool:
        return False

    def write(self, job: FlashJob, events: Events) -> int:
        return write_firmware(replace(job, tools=self.tools), events)

    @contextmanager
    def opened(self, baud: int) -> Iterator[Any]:
        with self.host.opened(self.address, baud) as port:
            yield port


@dataclass(frozen=True)
class RemoteTools:
    """Flash tools on the host."""

    connection: Connection

    @property
    def machine(self) -> str:
        return self.connection.address

    def find(self, tool: str, install: str) -> str:
        found = self.connection.run(("sh", "-c", _FIND, "edgekit", tool))
        lines = found.output.splitlines()
        if found.status != 0 or not lines or not lines[-1].startswith("/"):
            raise MissingToolError(
                f"{tool}, which writes the firmware, is not installed on {self.machine}",
                hint=f"run on the host: {install}",
            )
        return lines[-1]

    @contextmanager
    def placed(self, file: Path) -> Iterator[str]:
        with storage_errors("read the firmware", file):
            data = file.read_bytes()
        name = f"firmware{file.suffix}"
        with self.connection.command(
            ("sh", "-c", _KEEP_FILE, self.connection.stream_name, name, str(len(data)))
        ) as keeper:
            try:
                keeper.send(data, _SECONDS_TO_SEND)
                path = _answer(keeper)
            except CommandEnded as error:
                raise DeviceError(
                    f"{self.machine} could not store the firmware",
                    hint="check the disk and permissions of its folder for temporary files",
                    details=keeper.errors(),
                ) from error
            yield path

    def run(
        self, command: Sequence[str], *, folder: Path | None = None, limit_s: float = _FLASH_SECONDS
    ) -> Said:
        """Run a tool in a folder that its user cannot write to. `folder`, a folder of this
        machine, is ignored."""
        done = self.connection.run(("sh", "-c", _RUN, "edgekit", *command), timeout=limit_s)
        return Said(done.status, "\n".join((done.output, *done.errors)))


@contextmanager
def ended_after(command: RemoteCommand) -> Iterator[None]:
    """Wait for the shell on the host at the end, so that the next user finds the port free."""
    try:
        yield
    finally:
        with suppress(DeviceError):
            command.end_input()
            command.finish(timeout=_SECONDS_TO_END)


def _answer(command: RemoteCommand) -> str:
    """Return the first message of our shell, after any output of the host's start-up files."""
    for _ in range(_MOST_LINES):
        line = command.read_line(_SECONDS_TO_OPEN)
        if line.startswith("edgekit "):
            return line.removeprefix("edgekit ")
    return ""
