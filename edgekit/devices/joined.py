"""Devices of hosts whose farms have joined this user's farm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from edgekit.base.decode import DecodeError, Most, Range, decode
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.wording import printable
from edgekit.devices.keeper_client import FarmDown, ask
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, matching
from edgekit.project.devices import (
    FASTEST,
    FOLDER,
    FOLDER_EXPECTED,
    PROBE,
    PROBE_EXPECTED,
    SERIAL,
    SERIAL_EXPECTED,
    SLOWEST,
    DeviceEntry,
    JoinedEntry,
    LineEntry,
    SshEntry,
    make_login,
)


@dataclass(frozen=True)
class _Settings:
    """What the farm of the host says of a device; none of it is trusted."""

    board: Annotated[str, matching(NAME_PATTERN, NAME_EXPECTED)]
    serial: Annotated[str, matching(SERIAL, SERIAL_EXPECTED)] | None = None
    baud: Annotated[int, Range(SLOWEST, FASTEST)] | None = None
    probe: Annotated[str, matching(PROBE, PROBE_EXPECTED)] | None = None
    host: Annotated[str, Most(300)] | None = None
    directory: Annotated[str, matching(FOLDER, FOLDER_EXPECTED)] | None = None
    twin: bool = False


@dataclass(frozen=True)
class _Host:
    """The host, as this user's farm.toml has it."""

    name: str
    address: str
    key: str | None
    proxy: str | None
    program: str | None

    @property
    def login(self) -> SshEntry:
        return replace(make_login(self.name, "local", self.address, None, self.proxy), key=self.key)


@dataclass(frozen=True)
class _Answer:
    device: Annotated[str, matching(NAME_PATTERN, NAME_EXPECTED)]
    entry: _Settings
    address: Annotated[str, Most(300)]
    is_line: bool
    host: _Host | None = None


def joined_entry(name: str) -> DeviceEntry | None:
    """Return the entry of a device that a joined host has; None if there is none of that name."""
    try:
        answer: Any = ask({"do": "entry", "device": name})
    except (FarmDown, UsageError):
        return None
    try:
        found = decode(_Answer, answer, ignore_unknown=True)
    except DecodeError as error:
        raise DeviceError(
            f"what the farm says of {name} is invalid: {error}",
            hint="install the same edgekit on both hosts",
        ) from error
    host, entry = found.host, found.entry
    if host is None:
        return None
    if not found.is_line:
        return JoinedEntry(
            name, entry.board, host.login, found.device, printable(found.address), host.program,
            entry.directory, entry.twin,
        )  # fmt: skip
    if entry.serial is None or entry.host is not None or entry.serial.startswith("unix:"):
        raise UsageError(
            f"the serial line of {name} can be used on {host.name} only: "
            f"{printable(found.address)}",
            hint=f"run the command on {host.name}",
        )
    via = replace(host.login, name=f"the host of {name}")
    return LineEntry(name, entry.board, entry.baud, entry.probe, entry.serial, via)
