"""Emulated boards as devices: started on demand, then reached like any other.

edgekit made their host keys, so none has to be confirmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.base.events import SILENT, Events
from edgekit.profiles.board import toolchain_of
from edgekit.project.devices import SshEntry

if TYPE_CHECKING:
    from edgekit.devices.device import Device
    from edgekit.devices.linux.ssh import SshDevice
    from edgekit.profiles.board import Board


def twin_of(name: str, board: Board, timeout: float, events: Events = SILENT) -> Device:
    """Return the twin of that name, running; a microcontroller possibly without firmware."""
    make = emulated_device if board.has_os else _emulated_microcontroller
    return make(name, board, timeout, events)


def emulated_device(name: str, board: Board, timeout: float, events: Events = SILENT) -> SshDevice:
    """Return the twin of a board with Linux."""
    from edgekit.devices.linux.hostkeys import KnownHosts
    from edgekit.devices.linux.ssh import SshDevice
    from edgekit.twin.machine import up

    access = up(name, board, events=events).access
    entry = SshEntry(name, board.name, access.host, access.user, access.port, str(access.key))
    known = KnownHosts(access.known_hosts, access.known_hosts)
    return SshDevice(entry, toolchain_of(board), timeout, known, is_emulated=True)


def _emulated_microcontroller(name: str, board: Board, timeout: float, events: Events) -> Device:
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
        gdb=toolchain_of(board).tools.gdb or "gdb-multiarch",
        chip=EmulatedChip(started.clock, started.folder),
    )
