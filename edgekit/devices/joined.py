"""Devices of hosts whose farms have joined this user's farm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from edgekit.base.decode import Most, Range
from edgekit.base.errors import UsageError
from edgekit.base.wording import printable
from edgekit.devices.keeper_client import FarmDown, ask
from edgekit.devices.keeper_messages import Request, answer_as
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, matching
from edgekit.project.devices import (
    FASTEST,
    FOLDER,
    FOLDER_EXPECTED,
    SLOWEST,
    DeviceEntry,
    JoinedEntry,
    SshEntry,
    make_login,
)


@dataclass(frozen=True)
class _Settings:
    """What the farm of the host says of a device; none of it is trusted."""

    board: Annotated[str, matching(NAME_PATTERN, NAME_EXPECTED)]
    baud: Annotated[int, Range(SLOWEST, FASTEST)] | None = None
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
    host: _Host | None = None


def joined_entry(name: str) -> DeviceEntry | None:
    """Return the entry of a device that a joined host has; None if there is none of that name."""
    try:
        answer = ask(Request("entry", name))
    except (FarmDown, UsageError):
        return None
    found = answer_as(_Answer, answer)
    host, entry = found.host, found.entry
    if host is None:
        return None
    return JoinedEntry(
        name, entry.board, host.login, found.device, printable(found.address), host.program,
        entry.directory, entry.twin, entry.baud,
    )  # fmt: skip
