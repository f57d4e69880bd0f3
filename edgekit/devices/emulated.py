"""Emulated boards as devices: started on demand, then reached over SSH like any other. edgekit made
their host keys, so none has to be confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.events import SILENT, Events
from edgekit.devices.linux.hostkeys import KnownHosts
from edgekit.project.devices import DeviceEntry
from edgekit.twin.machine import up

if TYPE_CHECKING:
    from edgekit.devices.linux.ssh import SshDevice
    from edgekit.devices.serial.device import SerialDevice
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain


def emulated_device(
    name: str, board: Board, toolchain: Toolchain, timeout: float, events: Events = SILENT
) -> SshDevice:
    """Return the twin of that name, running."""
    from edgekit.devices.linux.ssh import SshDevice

    access = up(name, board, events=events).access
    entry = DeviceEntry(
        name=name,
        board=board.name,
        host=access.host,
        user=access.user,
        port=access.port,
        key=str(access.key),
        twin=True,
    )
    return SshDevice(entry, toolchain, timeout, KnownHosts(access.known_hosts, access.known_hosts))


def emulated_microcontroller(
    name: str, board: Board, toolchain: Toolchain, timeout: float, events: Events = SILENT
) -> SerialDevice:
    """Return the twin of that name, running, possibly without firmware."""
    from edgekit.devices.serial.device import EmulatedChip, SerialDevice
    from edgekit.devices.serial.port import DEFAULT_BAUD
    from edgekit.twin import microcontroller

    started = microcontroller.up(name, board, events=events)
    return SerialDevice(
        name=name,
        board=board,
        port=started.serial,
        baud=board.transport.baud or DEFAULT_BAUD,
        timeout=timeout,
        gdb=toolchain.tools.gdb or "gdb-multiarch",
        chip=EmulatedChip(started.folder, started.clock),
    )
