"""Twins of microcontrollers: one core in QEMU, its serial line on a port of loopback.

Such a twin starts blank and stopped, like a new chip. Its firmware is written through QEMU's
debugger port.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.json_text import json_text
from edgekit.base.options import option
from edgekit.profiles.architecture import architectures
from edgekit.profiles.board import Board
from edgekit.twin import qemu, qmp
from edgekit.twin.processes import QUIT_SECONDS, end, end_any, locked, process_of, twin_folder
from edgekit.twin.state import LARGEST_FILE, Hardware, MicrocontrollerState, parse_as
from edgekit.twin.tools import HostTool, require_tools

STATE_FILE = "microcontroller.json"
GDB_SOCKET = "gdb"
LINE_SOCKET = "line"
COUNT_SHIFT = 6
"""The shift of QEMU's -icount: an instruction takes 2^6 ns, so that the timer counts each one."""


@dataclass(frozen=True)
class StartedMicrocontroller:
    """A running twin of a microcontroller."""

    name: str
    board: str
    already_running: bool
    seconds: float
    hardware: Hardware
    serial: str
    folder: Path
    clock: int


def up(
    name: str, board: Board, *, fresh: bool = False, events: Events = SILENT
) -> StartedMicrocontroller:
    """Start a twin or find it running; `fresh` makes it blank again."""
    began = time.monotonic()
    hardware, clock = hardware_of(board)
    emulator = architectures()[board.cpu.arch].qemu
    require_tools((HostTool(emulator.system, emulator.package),), "a twin")
    folder = twin_folder(name)
    with locked(folder, events):
        state = read(folder) if is_one(folder) else None
        if (state is not None and state.board != board.name) or (state is None and folder.exists()):
            raise UsageError(
                f"the twin {name} is not a {board.name}",
                hint=f"choose another {option('name')}, or remove it: edgekit twin down {name} "
                "--delete",
            )
        process = process_of(folder)
        already = (
            state is not None
            and process is not None
            and process.uuid == state.uuid
            and (folder / LINE_SOCKET).exists()  # an older edgekit used a loopback port
            and not fresh
        )
        if state is None or not already:
            end_any(folder)
            state = _start(folder, board, hardware, clock)
        elif condition_of(folder) == "paused":
            with qmp.connected(folder / qemu.QMP_SOCKET) as control:
                control.execute("cont")
    return StartedMicrocontroller(
        name,
        board.name,
        already,
        time.monotonic() - began,
        hardware,
        address_of(folder),
        folder,
        clock,
    )


def has_twin(board: Board) -> bool:
    """Return whether a machine of QEMU has the board's core and memory."""
    try:
        hardware_of(board)
    except UsageError:
        return False
    return True


def hardware_of(board: Board) -> tuple[Hardware, int]:
    """Return the emulated hardware of a board and the clock of its timer.

    Raise UsageError if the board has no twin, or a machine with another board's memory.
    """
    from edgekit.profiles.board import board_names, load_board

    twin = board.twin
    if twin is None or twin.clock is None:
        raise UsageError(
            f"the board {board.name} has no twin",
            hint="edgekit boards show tells which boards have one",
        )
    if twin.machine in board_names(board.folder) and board.name != twin.machine:
        owner = load_board(twin.machine, board.folder)
        if owner.memory.regions != board.memory.regions:
            raise UsageError(
                f"no emulator has the memory of the board {board.name}, and its firmware needs "
                "that memory",
                hint="build for the nearest machine with the same core: "
                f"{option('board', owner.name)}",
            )
    ram = board.memory.ram
    return Hardware(twin.machine, twin.cpu, 1, ram, icount=True, arch=board.cpu.arch), twin.clock


def address_of(folder: Path) -> str:
    """Return the address of the serial line: a socket in a folder that other users can't enter."""
    return f"unix://{folder / LINE_SOCKET}"


def is_one(folder: Path) -> bool:
    """Tell whether a folder is that of a microcontroller's twin."""
    return (folder / STATE_FILE).exists()


def read(folder: Path) -> MicrocontrollerState:
    """Read the state; raise DeviceError if it is damaged."""
    file = folder / STATE_FILE
    with storage_errors("read the twin's state", file), file.open("rb") as stream:
        data = stream.read(LARGEST_FILE + 1)
    return parse_as(MicrocontrollerState, data, folder.name)


def condition_of(folder: Path) -> Literal["running", "blank", "paused"]:
    """Return the condition of a running twin: blank before its first firmware."""
    with qmp.connected(folder / qemu.QMP_SOCKET) as control:
        said = control.execute("query-status").get("status")
    if said == "prelaunch":
        return "blank"
    return "paused" if said == "paused" else "running"


def stop(
    folder: Path, delete: bool, events: Events
) -> Literal["powered off", "killed", "was not running"]:
    """End a twin, whose firmware has nothing to save. The caller holds the twin's lock."""
    process = process_of(folder)
    how: Literal["powered off", "killed", "was not running"] = "was not running"
    if process is not None:
        with events.stage(f"stop {folder.name}") as stage:
            how = "powered off" if _quit(folder, process) else "killed"
            if how == "killed":
                end(process)
            stage.result = how
    if delete:
        with storage_errors("remove the twin", folder):
            shutil.rmtree(folder)
        return how
    _write(folder, replace(read(folder), wanted=False))
    return how


def instructions(ticks: int, clock: int) -> int:
    """Convert ticks of a twin's timer to instructions."""
    return round(ticks * 1_000_000_000 / clock / (1 << COUNT_SHIFT))


def _quit(folder: Path, process: qemu.Process) -> bool:
    try:
        with qmp.connected(folder / qemu.QMP_SOCKET) as control:
            control.execute("quit")
    except qmp.QmpError:
        return False
    return qemu.wait_until_gone(process, QUIT_SECONDS)


def _start(
    folder: Path,
    board: Board,
    hardware: Hardware,
    clock: int,
) -> MicrocontrollerState:
    with storage_errors("make the twin's folder", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # its sockets have no passwords
    name, marker = folder.name, str(uuid.uuid4())
    state = MicrocontrollerState(name, board.name, marker, hardware, clock, wanted=True)
    _write(folder, state)  # before QEMU runs, so that its process is recognised
    said = _launch(folder, state)
    if said is not None:
        _write(folder, replace(state, wanted=False))
        emulator = architectures()[hardware.arch].qemu.system
        raise qemu.does_not_start(said, f"{emulator} -M help lists its machines")
    return state


def command_line(folder: Path, state: MicrocontrollerState) -> list[str]:
    """Return QEMU's arguments. Socket names must be short: they are relative to the folder."""
    line = f"socket,id=line,path={LINE_SOCKET},server=on,wait=off"
    return [
        *("-name", f"edgekit-twin-{state.name}", "-uuid", state.uuid),
        *("-machine", state.hardware.machine, "-cpu", state.hardware.cpu),
        *(*architectures()[state.hardware.arch].qemu.options, "-accel", "tcg,thread=single"),
        *("-icount", f"shift={COUNT_SHIFT},sleep=on"),
        *("-display", "none", "-monitor", "none", "-nodefaults"),
        *("-chardev", line, "-serial", "chardev:line"),
        *("-qmp", f"unix:{qemu.QMP_SOCKET},server=on,wait=off"),
        *("-gdb", f"unix:{GDB_SOCKET},server=on,wait=off", "-S"),
        *("-D", str(folder / "qemu.log"), "-daemonize"),
    ]


def _launch(folder: Path, state: MicrocontrollerState) -> str | None:
    """Start QEMU. Return None, or its message if it fails."""
    for name in (qemu.QMP_SOCKET, GDB_SOCKET, LINE_SOCKET):
        (folder / name).unlink(missing_ok=True)
    emulator = architectures()[state.hardware.arch].qemu.system
    return qemu.launch(emulator, command_line(folder, state), folder)


def _write(folder: Path, state: MicrocontrollerState) -> None:
    with storage_errors("write the twin's state", folder):
        write_atomically(folder / STATE_FILE, json_text(state) + "\n")
