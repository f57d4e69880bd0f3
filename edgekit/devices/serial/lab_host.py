"""A microcontroller that is attached to another machine: its serial port and its flash tools, used
through one SSH connection to that machine, which needs a POSIX shell and no edgekit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import DeviceError, MissingToolError
from edgekit.base.files import storage_errors
from edgekit.devices.flash.tool import Said
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.hostkeys import Ask, KnownHosts
from edgekit.devices.linux.remote_command import CommandEnded, RemoteCommand
from edgekit.devices.linux.signs_of_life import END_STREAMS, LISTEN
from edgekit.devices.serial.lock import MOST_FOR_LOOKS, PATIENCE
from edgekit.devices.serial.port import DEFAULT_BAUD, LineInUse, opened_port
from edgekit.project.devices import DeviceEntry

if TYPE_CHECKING:
    from edgekit.profiles.board import Board

_SECONDS_TO_OPEN = 20.0
_SECONDS_TO_SEND = 60.0
_SECONDS_TO_END = 3.0
_FLASH_SECONDS = 300.0
_MOST_LINES = 200
"""Of what a host's start-up files may say before our shell does."""
_CONNECT_FAILED = 2
"""SSH's number for a port where nobody listens."""
_SOCKET = re.compile(
    r"(?P<kind>socket|rfc2217)://(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]+)):(?P<port>\d+)"
)

# A file that anybody may lock and nobody needs to write, by the port's real name: two users of one
# host keep apart as well. It is made without following whatever somebody put in its place.
# A second one is locked by who only looks: devices/serial/lock.py does the same on this machine.
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

# The keeper of the line waits for the end of its own input, which comes with the end of the
# connection however that comes about, and then ends what reads the port. It has the port open, and
# locked, as well: the shell's end says that nobody has.
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

# What was sent is gone again with the connection.
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
    """A stream of bytes through SSH, as pyserial's ports are used."""

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
            raise OSError(f"{self._address} is not there any more") from error

    def write(self, data: bytes) -> None:
        try:
            self._stream.send(data, _SECONDS_TO_SEND)
        except CommandEnded as error:
            raise OSError(f"{self._address} is not there any more") from error

    def flush(self) -> None:
        """Nothing waits here."""


@dataclass(frozen=True)
class LabHost:
    """Who has the serial port."""

    entry: DeviceEntry
    """The device's: its address is the host's."""
    known_hosts: KnownHosts | None = None

    @contextmanager
    def connected(
        self, ask: Ask | None = None, fingerprint: str | None = None
    ) -> Iterator[RemoteHost]:
        named = replace(self.entry, name=f"the host of {self.entry.name}")
        with connect(
            named, known_hosts=self.known_hosts, ask=ask, fingerprint=fingerprint
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
        """Hold the line against everybody's edgekit for the time of the block. `looking` is for a
        farm, which gives way to users."""
        limits = (0, 0) if looking else (round(patience), round(MOST_FOR_LOOKS))
        words = ("sh", "-c", _HOLD, "edgekit", address, *map(str, limits))
        with self.connection.command(words, listens=True) as holder:
            try:
                answer = _answer(holder)
            except CommandEnded as error:
                raise self._failed(address, holder) from error
            if answer != "held":
                raise LineInUse(
                    f"the serial port {address} of {self.machine} is in use by another edgekit",
                    hint="wait until it is done, or end it",
                )
            with _ended_after(holder):
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
            with _ended_after(pump):
                yield ChannelPort(pump, address)

    @contextmanager
    def _socket(self, address: str, host: str, port: int) -> Iterator[ChannelPort]:
        try:
            channel = self.connection.open_channel("direct-tcpip", (host, port))
        except DeviceError as error:
            if getattr(error.__cause__, "code", None) != _CONNECT_FAILED:
                raise
            raise DeviceError(
                f"nobody listens at {address}, as {self.machine} sees it",
                hint="start what serves the serial port there",
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
                hint="plug the board in; ls /dev/serial/by-id over there shows the ports there are",
            )
        if why == "denied":
            return DeviceError(
                f"{place} may not be opened by the user that edgekit logs in as",
                hint="sudo usermod -aG dialout USER over there",
            )
        if why == "busy":
            return LineInUse(
                f"{place} is in use by another program",
                hint="close it; fuser over there shows which one it is",
            )
        if why == "speed":
            return DeviceError(
                f"{place} can't be set to {baud} baud",
                hint="give another --baud, one that stty knows over there",
            )
        return DeviceError(
            f"{place} is no terminal", hint="name a device file such as /dev/ttyACM0"
        )

    def _failed(self, address: str, command: RemoteCommand) -> DeviceError:
        errors = command.errors()
        return DeviceError(
            f"the serial port {address} of {self.machine} can't be opened"
            + (f": {errors[-1]}" if errors else ""),
            hint="is there a POSIX shell with stty over there?",
            details=errors[-12:-1],
        )


@dataclass(frozen=True)
class RemoteLine:
    """A serial port over there that is ours."""

    host: RemoteHost
    address: str

    @property
    def tools(self) -> RemoteTools:
        return RemoteTools(self.host.connection)

    @contextmanager
    def opened(self, baud: int) -> Iterator[Any]:
        with self.host.opened(self.address, baud) as port:
            yield port


@dataclass(frozen=True)
class RemoteTools:
    """Flash tools of the host."""

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
                hint=f"over there: {install}",
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
                    hint="check its folder for temporary files: its disk, its permissions",
                    details=keeper.errors(),
                ) from error
            yield path

    def run(
        self, command: Sequence[str], *, folder: Path | None = None, limit_s: float = _FLASH_SECONDS
    ) -> Said:
        """Run a tool in a folder that its user cannot write to. `folder` would be one of this
        machine's."""
        done = self.connection.run(("sh", "-c", _RUN, "edgekit", *command), timeout=limit_s)
        return Said(done.status, "\n".join((done.output, *done.errors)))


def meet(
    lab: LabHost,
    board: Board,
    *,
    ask: Ask | None = None,
    fingerprint: str | None = None,
) -> DeviceError | None:
    """Log in, and look at the port: why it can't be opened, if so. The board is not asked."""
    address, baud = lab.entry.serial or "", lab.entry.baud or board.transport.baud or DEFAULT_BAUD
    with lab.connected(ask, fingerprint) as host:
        try:
            with host.held(address), host.opened(address, baud):
                pass
        except DeviceError as error:
            return error
    return None


@contextmanager
def _ended_after(command: RemoteCommand) -> Iterator[None]:
    """Who comes next finds the port free: the shell over there is waited for."""
    try:
        yield
    finally:
        with suppress(DeviceError):
            command.end_input()
            command.finish(timeout=_SECONDS_TO_END)


def _answer(command: RemoteCommand) -> str:
    """What our shell says first, whatever the host's start-up files say before."""
    for _ in range(_MOST_LINES):
        line = command.read_line(_SECONDS_TO_OPEN)
        if line.startswith("edgekit "):
            return line.removeprefix("edgekit ")
    return ""
