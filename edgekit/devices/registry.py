"""The registered devices: the project's, in edgekit.toml, and the user's own, in devices.toml.

The project's entry wins if both have a name. `edgekit device add` and `remove` change the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.base.paths import config_dir
from edgekit.base.wording import did_you_mean
from edgekit.devices.device import Device
from edgekit.devices.joined import joined_entry
from edgekit.devices.limits.measure import NATIVE
from edgekit.devices.local.device import DEFAULT_TIMEOUT_SECONDS
from edgekit.profiles.board import Board, toolchain_of
from edgekit.project import user_file
from edgekit.project.devices import (
    DeviceEntry,
    JoinedEntry,
    LineEntry,
    LinuxEntry,
    SshEntry,
    TwinEntry,
)
from edgekit.project.file import Project
from edgekit.project.user_devices import board_of, devices_file, parse_user_devices, profile_problem

_HEADER = f"""\
# The devices that `edgekit device` knows for this user. docs/devices.md describes every key.
schema = {user_file.SCHEMA_VERSION}
"""


@dataclass(frozen=True)
class KnownDevice:
    entry: DeviceEntry
    origin: Path
    """File that holds the entry."""

    def board(self, folder: Path | None, events: Events = SILENT) -> Board:
        """Read the board to use it; a profile of `folder` is considered if none is remembered."""
        return board_of(self.entry, (folder, self.origin.parent), events)

    def problem(self, folder: Path | None) -> str | None:
        """Say what is wrong with the board's profile; None if nothing is."""
        return profile_problem(self.entry, (folder, self.origin.parent))


def known_devices(project: Project | None, file: Path | None = None) -> dict[str, KnownDevice]:
    """Return every device by its name, in the order in which they are tried."""
    own = file or devices_file()
    devices: dict[str, KnownDevice] = {}
    if project is not None:
        for entry in project.devices.values():
            devices[entry.name] = KnownDevice(entry, project.path)
    for entry in parse_user_devices(own, user_file.read_text(own)).values():
        devices.setdefault(entry.name, KnownDevice(entry, own))
    return devices


def find_device(name: str, devices: Mapping[str, KnownDevice]) -> KnownDevice:
    """Return a known device, or that of a host that has joined the farm."""
    if name in devices:
        return devices[name]
    joined = joined_entry(name)
    if joined is not None:
        return KnownDevice(joined, config_dir() / "farm.toml")
    raise UsageError(
        f"there is no device {name!r}",
        hint=did_you_mean(name, devices, "`edgekit device list` shows all devices"),
    )


def add_device(entry: DeviceEntry, *, replace: bool = False, file: Path | None = None) -> Path:
    """Add a device to the user's file and return that file."""
    own = file or devices_file()
    with user_file.editing(own, "remember the device"):
        text = user_file.read_text(own)
        if entry.name in parse_user_devices(own, text) and not replace:
            raise _taken(entry.name)
        place = ("devices", entry.name)
        user_file.edit_table(own, text or _HEADER, place, entry.table())
    return own


def remove_device(name: str, file: Path | None = None) -> bool:
    """Remove a device from the user's file; False if it was not in the file."""
    own = file or devices_file()
    if not user_file.read_text(own):
        return False
    with user_file.editing(own, "forget the device"):
        text = user_file.read_text(own)
        if name not in parse_user_devices(own, text):
            return False
        user_file.edit_table(own, text, ("devices", name), None)
    return True


def device_of(
    entry: DeviceEntry,
    board: Board,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    events: Events = SILENT,
) -> Device:
    """Return the device of an entry, not connected yet; start it if it is a twin."""
    from edgekit.devices.emulated import twin_of

    if isinstance(entry, TwinEntry):
        return twin_of(entry.name, board, timeout, events)
    return (
        _on_a_line(entry, board, timeout) if not board.has_os else _over_ssh(entry, board, timeout)
    )


def _over_ssh(entry: LinuxEntry | LineEntry, board: Board, timeout: float) -> Device:
    from edgekit.devices.linux.ssh import SshDevice

    flags = NATIVE if board.is_host else board.cpu.compile_flags
    if isinstance(entry, JoinedEntry):
        return SshDevice(
            entry, toolchain_of(board), timeout, is_emulated=entry.is_emulated, cpu_flags=flags
        )

    if isinstance(entry, LineEntry):
        entry = replace(entry.via or SshEntry(entry.name, entry.board), name=entry.name)
    return SshDevice(entry, toolchain_of(board), timeout, cpu_flags=flags)


def _on_a_line(entry: LinuxEntry | LineEntry, board: Board, timeout: float) -> Device:
    from edgekit.devices.serial.device import EmulatedChip, SerialDevice
    from edgekit.devices.serial.joined_line import JoinedLineHost
    from edgekit.devices.serial.lab_host import LabHost
    from edgekit.devices.serial.port import DEFAULT_BAUD
    from edgekit.twin.microcontroller import hardware_of

    if isinstance(entry, SshEntry):
        raise DeviceError(
            f"the serial port of {entry.name} is unknown",
            hint=f"edgekit device add {entry.name} --force --board {board.name} --port "
            "/dev/ttyACM0",
        )
    baud = entry.baud or board.transport.baud or DEFAULT_BAUD
    if isinstance(entry, JoinedEntry):
        return SerialDevice(
            name=entry.name,
            board=board,
            port=entry.where,
            baud=baud,
            timeout=timeout,
            chip=EmulatedChip(hardware_of(board)[1]) if entry.is_emulated else None,
            host=JoinedLineHost(entry),
        )
    return SerialDevice(
        name=entry.name,
        board=board,
        port=entry.line,
        baud=baud,
        timeout=timeout,
        probe=entry.probe,
        gdb=toolchain_of(board).tools.gdb or "gdb-multiarch",
        host=LabHost(entry.via) if entry.via else None,
        labgrid=entry.place,
        entry=entry,
    )


def refuse_taken(name: str, replace: bool) -> None:
    """Raise UsageError if a device of that name exists and may not be replaced."""
    own = devices_file()
    if not replace and name in parse_user_devices(own, user_file.read_text(own)):
        raise _taken(name)


def forget_device(name: str, project: Project | None) -> Path:
    """Remove a device from the user's file and return that file; UsageError if it is not in it."""
    if remove_device(name):
        return devices_file()
    found = find_device(name, known_devices(project))
    raise UsageError(
        f"the device {name} is in {found.origin}", hint=f"remove [devices.{name}] from it"
    )


def _taken(name: str) -> UsageError:
    return UsageError(
        f"the device {name} exists already",
        hint=f"choose another name, or add {option('force')} to replace it",
    )
