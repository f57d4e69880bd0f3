"""The devices of a farm, chosen before any of it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.base.children import module_command
from edgekit.base.errors import ProfileError, UsageError
from edgekit.devices.registry import KnownDevice, find_device, known_devices
from edgekit.farm.health import Limits
from edgekit.farm.hosts.file import known_hosts_of_farm
from edgekit.project.file import Project
from edgekit.rpc.protocol import DEFAULT_PORT

DEFAULT_LONGEST_RESERVATION = 24 * 3600.0


@dataclass(frozen=True)
class Member:
    name: str
    board: str
    key: str
    """The tracker's key; empty if TVM's tracker cannot hand out the device."""
    is_emulated: bool = False
    """Whether it is a twin, whose times are not the board's."""
    address: str = ""
    """The address of the device, by which commands find it in the farm."""
    settings: Mapping[str, object] = field(default_factory=dict, compare=False)
    """The keys of the device's table, for hosts that this farm has joined."""


@dataclass(frozen=True)
class FarmPlan:
    members: tuple[Member, ...]
    project: Path | None = None
    """The project file that lists devices in addition to the user's own."""
    port: int = DEFAULT_PORT
    """The port of the tracker, if none runs yet."""
    limits: Limits = field(default_factory=Limits)
    longest_reservation: float = DEFAULT_LONGEST_RESERVATION
    worker: tuple[str, ...] = field(default_factory=lambda: module_command("edgekit.farm.worker"))
    """The program that serves a device, with its first arguments."""


def plan_farm(project: Project | None, names: Sequence[str], port: int) -> FarmPlan:
    """Plan a farm of the named devices, or of all known ones with an address. It may be empty if
    other hosts have joined."""
    known = known_devices(project)
    chosen = [find_device(name, known) for name in dict.fromkeys(names)] or list(known.values())
    members = [
        member
        for device in chosen
        if (member := _member(device, project, is_named=bool(names))) is not None
    ]
    if not members and not known_hosts_of_farm():
        raise UsageError(
            "no known device can serve",
            hint="add one with edgekit device add NAME --board BOARD user@host",
        )
    return FarmPlan(tuple(members), project.path if project is not None else None, port)


def _member(device: KnownDevice, project: Project | None, *, is_named: bool) -> Member | None:
    """Return the farm's entry of a device; None for one that has no address."""
    entry = device.entry
    try:
        has_os = device.board(None if project is None else project.folder).has_os
    except ProfileError:
        # The worker fails with the reason, until the profile is back.
        has_os = not entry.has_line
    if not (has_os or entry.has_line or entry.is_twin):
        if not is_named:
            return None
        raise UsageError(
            f"{entry.name} is a {entry.board} without a serial port",
            hint=f"edgekit device add {entry.name} --force --board {entry.board} --port "
            "/dev/ttyACM0",
        )
    key = entry.board if has_os else ""
    settings = {name: value for name, value in entry.table().items() if value is not None}
    return Member(entry.name, entry.board, key, entry.is_twin, entry.identity, settings)
