"""Which devices a farm is to have."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.base.errors import UsageError
from edgekit.devices.registry import find_device, known_devices
from edgekit.farm.hosts.file import known_hosts_of_farm
from edgekit.farm.members import FarmPlan, Member
from edgekit.profiles.board import load_board
from edgekit.project.devices import DeviceEntry
from edgekit.project.file import Project


def plan_farm(project: Project | None, names: Sequence[str], port: int) -> FarmPlan:
    """Those that are named, or every known one that has an address; none at all where other hosts
    have devices enough."""
    known = known_devices(project)
    if names:
        entries = [find_device(name, known).entry for name in dict.fromkeys(names)]
    else:
        entries = [
            device.entry
            for device in known.values()
            if _has_line(device.entry) or load_board(device.entry.board).kind != "baremetal"
        ]
    if not entries and not known_hosts_of_farm():
        raise UsageError(
            "no device is known that could serve",
            hint="edgekit device add NAME --board BOARD user@host makes one known",
        )
    members = []
    for entry in entries:
        board = load_board(entry.board)
        if board.kind == "baremetal" and not _has_line(entry):
            raise UsageError(
                f"{entry.name} is a {board.name} without a serial port to look at",
                hint=f"edgekit device add {entry.name} --force --board {board.name} --port "
                "/dev/ttyACM0",
            )
        key = "" if board.kind == "baremetal" else board.name
        members.append(Member(entry.name, board.name, key))
    return FarmPlan(tuple(members), project.path if project is not None else None, port)


def _has_line(entry: DeviceEntry) -> bool:
    return bool(entry.serial or entry.labgrid)
