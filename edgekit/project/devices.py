"""Entries of devices: tables [devices.NAME] in edgekit.toml or the user's devices.toml."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from edgekit.base.errors import UsageError
from edgekit.base.measurer import Measurer
from edgekit.base.paths import beside
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, TableReader, show
from edgekit.project.power import POWER_EXPECTED, is_power

if TYPE_CHECKING:
    from edgekit.profiles.board import Board

SSH_PORT = 22
Value = str | int | None

# No name may look like an option, or hold a character that a shell or ssh's %h replaces.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\$?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")
_ZONE = re.compile(r"[A-Za-z0-9._-]{1,30}")
_TARGET = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<host>[^:@\[\]]+))(?::(?P<port>[0-9]{1,5}))?"
)
FOLDER = re.compile(r"/[A-Za-z0-9._/-]{1,200}")
SERIAL = re.compile(
    r"/[A-Za-z0-9._/:@+,=-]{1,200}|unix:///[A-Za-z0-9._/:@+,=-]{1,200}"
    r"|(socket|rfc2217)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}"
)
_PLACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}")
PROBE = re.compile(r"[A-Za-z0-9:._-]{1,64}")
_PATH = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_PROFILE = re.compile(r"/[^\x00-\x1f\x7f]{1,1000}/boards/[a-z0-9][a-z0-9_-]{0,62}\.toml")
_SHA256 = re.compile(r"[0-9a-f]{64}")

USER_EXPECTED = "a user name"
HOST_EXPECTED = "a host name or an address"
SERIAL_EXPECTED = "/dev/…, socket://host:port, rfc2217://host:port or unix:///path"
PLACE_EXPECTED = "the name of a labgrid place"
PROBE_EXPECTED = "the serial number of a debug probe"
SLOWEST, FASTEST = 1200, 12_000_000
FOLDER_EXPECTED = "an absolute path without spaces"
TARGET_EXPECTED = "user@host, user@host:port or user@[address]:port"


@dataclass(frozen=True)
class Target:
    """A checked address, which no program can take for anything else."""

    host: str
    user: str | None = None
    """The user; None leaves it to ~/.ssh/config, else to the name of the user of edgekit."""
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}:{self.port}" if self.port else f"{user}{host}"


@dataclass(frozen=True)
class _Entry:
    """A named device: its board, and how it is reached."""

    name: str
    board: str
    profile: str | None = field(default=None, kw_only=True)
    """The path of the board's profile, if a folder holds it that is searched only from there."""
    profile_sha256: str | None = field(default=None, kw_only=True)
    """The hash of that profile when the device was added."""
    power: str | None = field(default=None, kw_only=True)
    """What switches the device's power, as `parse_power` reads it."""
    is_twin: ClassVar[bool] = False
    measured_by: ClassVar[Measurer | None] = None
    """What its times come from, as far as the entry tells."""
    has_line: ClassVar[bool] = False
    """Whether it can lead to a microcontroller."""

    @property
    def address(self) -> str | None:
        """The address for people; None if the entry has none."""
        return None

    @property
    def identity(self) -> str:
        """The address that the entry's device has as well."""
        return self.address or ""

    def table(self) -> dict[str, Value]:
        """Return the keys of [devices.NAME]; None for those without a value."""
        remembered = {"profile": self.profile, "profile_sha256": self.profile_sha256}
        return {"board": self.board, **remembered, "power": self.power}


@dataclass(frozen=True)
class SshEntry(_Entry):
    """A board with an SSH server."""

    host: str | None = None
    user: str | None = None
    port: int | None = None
    key: str | None = None
    """The path of a private key's file."""
    proxy: str | None = None
    """The jump host, in the form of a target."""
    directory: str | None = None
    """The folder of edgekit's files on the device, if not in the home folder."""

    @property
    def target(self) -> Target | None:
        return Target(self.host, self.user, self.port) if self.host else None

    @property
    def address(self) -> str | None:
        return str(self.target) if self.target else None

    def table(self) -> dict[str, Value]:
        return {key: value for key, value in vars(self).items() if key != "name"}

    @staticmethod
    def read(reader: TableReader, name: str, board: str, file: Path) -> SshEntry:
        host = _checked(reader, "host", is_host, HOST_EXPECTED)
        user = _checked(reader, "user", is_user, USER_EXPECTED)
        port = reader.integer("port", 1, (1 << 16) - 1) if reader.has("port") else None
        key = _matching(reader, "key", _PATH, "the path of a key file")
        proxy = _checked(reader, "proxy", is_target, TARGET_EXPECTED)
        directory = _matching(reader, "directory", FOLDER, FOLDER_EXPECTED)
        path = str(beside(file, key)) if key is not None else None
        return SshEntry(name, board, host, user, port, path, proxy, directory)


@dataclass(frozen=True)
class TwinEntry(_Entry):
    """An emulated board on this host."""

    is_twin: ClassVar[bool] = True
    measured_by: ClassVar[Measurer | None] = "emulator"

    @property
    def identity(self) -> str:
        return twin_identity(self.name)

    def table(self) -> dict[str, Value]:
        return {**super().table(), "twin": True}

    @staticmethod
    def read(reader: TableReader, login: SshEntry) -> TwinEntry | None:
        value = reader.raw("twin") if reader.has("twin") else False
        if not isinstance(value, bool):
            reader.complain("twin", show(value), "true or false")
        elif value and login.host is not None:
            reader.complain("twin", "true, and a host", "one of the two")
        return TwinEntry(login.name, login.board) if value is True else None


@dataclass(frozen=True)
class _LineSettings(_Entry):
    """A device on a serial line."""

    baud: int | None = None
    """The baud rate, if not the one in the board's profile."""
    probe: str | None = None
    """The debug probe that writes to it, if several are attached."""
    has_line: ClassVar[bool] = True

    @staticmethod
    def read_settings(reader: TableReader) -> tuple[int | None, str | None]:
        baud = reader.integer("baud", SLOWEST, FASTEST) if reader.has("baud") else None
        return baud, _matching(reader, "probe", PROBE, PROBE_EXPECTED)


@dataclass(frozen=True)
class LineEntry(_LineSettings):
    """A microcontroller on a serial port of this host, or of the host `via`."""

    serial: str = ""
    """The port, as pyserial opens it."""
    via: SshEntry | None = None
    place: ClassVar[str | None] = None

    @property
    def measured_by(self) -> Measurer | None:  # type: ignore[override]
        return "emulator" if leads_to_program(self.serial) else None

    @property
    def address(self) -> str:
        return f"{self.serial} on {self.via.address}" if self.via else self.serial

    @property
    def line(self) -> str:
        return self.serial

    def table(self) -> dict[str, Value]:
        via = self.via.table() if self.via else {}
        settings = {"serial": self.serial, "baud": self.baud, "probe": self.probe}
        return {**via, **super().table(), **settings}


@dataclass(frozen=True)
class PlaceEntry(_LineSettings):
    """A device that a labgrid place leads to; the place is acquired while it is used."""

    place: str = ""
    login: SshEntry | None = None
    """What the user gave of the address; the place gives the rest."""
    via: ClassVar[SshEntry | None] = None

    @property
    def address(self) -> str:
        return f"labgrid's place {self.place}"

    @property
    def line(self) -> str:
        return self.address

    @property
    def directory(self) -> str | None:
        return self.login.directory if self.login else None

    def table(self) -> dict[str, Value]:
        login = self.login.table() if self.login else {}
        settings = {"baud": self.baud, "probe": self.probe, "labgrid": self.place}
        return {**login, **super().table(), **settings}


@dataclass(frozen=True)
class JoinedEntry(_Entry):
    """A device of a host whose farm has joined this one; that host uses it for this one."""

    host: SshEntry
    device: str
    """The name of the device on the host."""
    where: str
    """The address of the device, as the host knows it."""
    program: str | None = None
    """The path of edgekit on the host, if it is not on the PATH."""
    directory: str | None = None
    is_emulated: bool = False
    baud: int | None = None

    @property
    def address(self) -> str:
        return f"{self.where} on {self.host.address}"


def leads_to_program(port: str) -> bool:
    """Tell whether a serial port is a program's: hardware has no socket in the file system, and no
    pseudo-terminal."""
    return port.startswith(("unix:", "/dev/pts/"))


def twin_identity(name: str) -> str:
    return f"twin {name}"


LinuxEntry = SshEntry | PlaceEntry | JoinedEntry
"""An entry that a connection can be made from."""
DeviceEntry = LinuxEntry | LineEntry | TwinEntry


def parse_target(text: str) -> Target:
    """Parse `user@host:port`; UsageError for any other form."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise _not_a_target(text)
    user, port = match["user"], match["port"]
    host = match["bracketed"] or match["host"]
    if user is not None and not is_user(user):
        raise _not_a_target(text, f"{show(user)} is not {USER_EXPECTED}")
    if match["bracketed"] and not _is_ipv6(host):
        raise _not_a_target(text, f"{show(host)} is not an IPv6 address")
    if not is_host(host):
        raise _not_a_target(text, f"{show(host)} is not {HOST_EXPECTED}")
    if port is not None and not 0 < int(port) < 1 << 16:
        raise _not_a_target(text, f"{port} is not a port")
    return Target(host, user, int(port) if port else None)


def make_entry(
    name: str,
    board: Board,
    target: str,
    *,
    key: Path | None = None,
    proxy: str | None = None,
    directory: str | None = None,
) -> SshEntry:
    """Make an entry from options of the command line; UsageError if they are not valid."""
    _check_name(name)
    _check_has_devices(board)
    if not board.has_os:
        raise UsageError(
            f"a {board.name} runs no SSH server: it is a bare-metal board",
            hint=f"edgekit device add {name} --board {board.name} --port {SERIAL_EXPECTED}",
        )
    if directory is not None and not FOLDER.fullmatch(directory):
        raise UsageError(
            f"{show(directory)} can't be edgekit's folder on a device",
            hint="give an absolute path without spaces",
        )
    return replace(make_login(name, board.name, target, key, proxy), directory=directory)


def _check_has_devices(board: Board) -> None:
    if board.in_engine:
        raise UsageError(
            f"{board.name} needs no device entry: its models run in "
            f"{' or '.join(board.transport.engines)} on this machine",
            hint=f"edgekit deploy MODEL --board {board.name}",
        )


def make_login(
    name: str, board: str, target: str, key: Path | None = None, proxy: str | None = None
) -> SshEntry:
    """Make the entry of an SSH server, of a device or of the host of its serial port."""
    place = parse_target(target)
    through = str(parse_target(proxy)) if proxy is not None else None
    return SshEntry(name, board, place.host, place.user, place.port, _key_file(key), through)


def make_line_entry(
    name: str,
    board: Board,
    address: str,
    *,
    via: SshEntry | None = None,
    baud: int | None = None,
    probe: str | None = None,
) -> LineEntry:
    """Make the entry of a microcontroller on a serial line of the host `via` or of this one.

    UsageError if the options are not valid.
    """
    _check_name(name)
    _check_has_devices(board)
    if board.has_os:
        raise UsageError(
            f"a {board.name} is reached over SSH, not over a serial line",
            hint=f"edgekit device add {name} --board {board.name} user@host",
        )
    if not SERIAL.fullmatch(address):
        raise UsageError(f"{show(address)} is no serial port", hint=f"write {SERIAL_EXPECTED}")
    if via is not None and address.startswith("unix:"):
        raise UsageError(
            f"{show(address)} is a socket of this machine, and no port that {show(via.address)} "
            "has",
            hint="name a device file, socket://host:port or rfc2217://host:port of that machine",
        )
    if probe is not None and not PROBE.fullmatch(probe):
        raise UsageError(f"{show(probe)} is not {PROBE_EXPECTED}", hint="its tool lists them")
    return LineEntry(name, board.name, baud, probe, address, via and _host_of(name, via))


def make_place_entry(
    name: str, board: Board, place: str, *, key: Path | None = None, baud: int | None = None
) -> PlaceEntry:
    """Make the entry of a device that a labgrid place leads to; UsageError if it is not valid."""
    _check_name(name)
    if not _PLACE.fullmatch(place):
        raise UsageError(f"{show(place)} is not {PLACE_EXPECTED}", hint="labgrid-client places")
    login = SshEntry(name, board.name, key=_key_file(key))
    return PlaceEntry(name, board.name, baud, place=place, login=login)


def _host_of(name: str, login: SshEntry) -> SshEntry:
    return replace(login, name=f"the host of {name}")


def _key_file(key: Path | None) -> str | None:
    where = str(key.expanduser().absolute()) if key is not None else None
    if where is not None and not _PATH.fullmatch(where):
        raise UsageError(f"{show(where)} can't be a key file", hint="rename it")
    return where


def _check_name(name: str) -> None:
    if not NAME_PATTERN.fullmatch(name) or name == "local":
        raise UsageError(
            f"{show(name)} is not the name of a device", hint=f"choose {NAME_EXPECTED}, not local"
        )


def is_user(text: str) -> bool:
    return _USER.fullmatch(text) is not None


def is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None or _is_ipv6(text)


def parse_device(reader: TableReader, name: str, file: Path) -> DeviceEntry:
    """Read one table [devices.NAME] of a file. Faults are added to the reader's problems."""
    board = reader.matching("board", NAME_PATTERN, NAME_EXPECTED)
    login = SshEntry.read(reader, name, board, file)
    twin = TwinEntry.read(reader, login)
    serial = _matching(reader, "serial", SERIAL, SERIAL_EXPECTED)
    if serial and twin:
        reader.complain("serial", show(serial), "one of serial and twin")
    settings = _LineSettings.read_settings(reader)
    place = _matching(reader, "labgrid", _PLACE, PLACE_EXPECTED)
    if place and (twin or serial):
        reader.complain("labgrid", show(place), "one of labgrid, serial and twin")
    profile = _matching(reader, "profile", _PROFILE, "the absolute path of a file boards/NAME.toml")
    sha256 = _matching(reader, "profile_sha256", _SHA256, "a SHA-256")
    power = _checked(reader, "power", is_power, POWER_EXPECTED)
    if power == "labgrid" and not place:
        reader.complain("power", show(power), "a labgrid place as well")
    reader.finish()
    entry: DeviceEntry = twin or login
    if place:
        entry = PlaceEntry(name, board, *settings, place, login)
    elif serial:
        via = _host_of(name, login) if login.host else None
        entry = LineEntry(name, board, *settings, serial, via)
    return replace(entry, profile=profile, profile_sha256=sha256, power=power)


def _matching(reader: TableReader, key: str, pattern: re.Pattern[str], expected: str) -> str | None:
    return (reader.matching(key, pattern, expected) or None) if reader.has(key) else None


def _checked(
    reader: TableReader, key: str, fits: Callable[[str], bool], expected: str
) -> str | None:
    if not reader.has(key):
        return None
    value = reader.raw(key)
    if isinstance(value, str) and fits(value):
        return value
    reader.complain(key, show(value), expected)
    return None


def is_target(text: str) -> bool:
    try:
        parse_target(text)
    except UsageError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(zone) is not None


def _not_a_target(text: str, why: str | None = None) -> UsageError:
    return UsageError(
        f"{show(text)} is not the address of a device" + (f": {why}" if why else ""),
        hint=f"write {TARGET_EXPECTED}",
    )
