"""Twins of microcontrollers: one core in QEMU, its serial line on a port of loopback.

Such a twin starts blank and stopped, as a chip from the factory does; its firmware is written to it
through QEMU's debugger port.
"""

from __future__ import annotations

import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.base.children import TimeoutExpired, run
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.json_reader import read_json
from edgekit.base.json_text import json_text
from edgekit.profiles.board import Board
from edgekit.profiles.reader import NAME_PATTERN
from edgekit.twin import qemu, qmp
from edgekit.twin.processes import QUIT_SECONDS, end, end_any, locked, process_of, twin_folder
from edgekit.twin.state import Hardware, flag_of, number_of, text_of
from edgekit.twin.tools import HostTool, find_tool, require_tools

STATE_FILE = "microcontroller.json"
GDB_SOCKET = "gdb"
LINE_SOCKET = "line"
COUNT_SHIFT = 6
"""Each instruction takes 2^6 ns of the twin's clock: its timer then counts every single one."""
TO_RUN = (HostTool(qemu.MICROCONTROLLERS, "qemu-system-arm"),)

_SCHEMA_VERSION = 1
_LARGEST_FILE = 1 << 16
_START_SECONDS = 60
_LARGEST_MEMORY = 1 << 32
_LARGEST_CLOCK = 1 << 32


@dataclass(frozen=True)
class MicrocontrollerState:
    name: str
    board: str
    uuid: str
    hardware: Hardware
    clock: int
    """In Hz, of the machine's timer."""
    wanted: bool
    schema: int = _SCHEMA_VERSION


@dataclass(frozen=True)
class StartedMicrocontroller:
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
    """Have a twin of that name; `fresh` makes it blank again."""
    began = time.monotonic()
    hardware, clock = hardware_of(board)
    require_tools(TO_RUN, "a twin")
    folder = twin_folder(name)
    with locked(folder, events):
        state = read(folder) if is_one(folder) else None
        if (state is not None and state.board != board.name) or (state is None and folder.exists()):
            raise UsageError(
                f"the twin {name} is not a {board.name}",
                hint=f"choose another --name, or remove it: edgekit twin down {name} --delete",
            )
        process = process_of(folder)
        already = (
            state is not None
            and process is not None
            and process.uuid == state.uuid
            and (folder / LINE_SOCKET).exists()  # an older edgekit gave it a port of loopback
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


def hardware_of(board: Board) -> tuple[Hardware, int]:
    """What QEMU emulates for this board, and the clock of its timer; UsageError where that is
    another board's machine."""
    from edgekit.profiles.board import board_names, load_board

    twin = board.twin
    if twin is None or twin.emulator != qemu.MICROCONTROLLERS or twin.clock is None:
        raise UsageError(
            f"the board {board.name} has no twin", hint="edgekit boards show says which have one"
        )
    if twin.machine in board_names() and board.name != twin.machine:
        owner = load_board(twin.machine)
        if owner.memory.regions != board.memory.regions:
            raise UsageError(
                f"no emulator has the memory of the board {board.name}, and what was built for it "
                "runs nowhere else",
                hint=f"build for the nearest machine with the same core: --board {owner.name}",
            )
    return Hardware(twin.machine, twin.cpu, 1, board.memory.ram, icount=True), twin.clock


def address_of(folder: Path) -> str:
    """Return where its serial line is, in its folder, which other users may not enter."""
    return f"unix://{folder / LINE_SOCKET}"


def is_one(folder: Path) -> bool:
    return (folder / STATE_FILE).exists()


def read(folder: Path) -> MicrocontrollerState:
    """DeviceError where what was written is damaged."""
    file = folder / STATE_FILE
    with storage_errors("read what the twin is", file), file.open("rb") as stream:
        data = stream.read(_LARGEST_FILE)
    try:
        document = read_json(data)
        hardware = document["hardware"]
        state = MicrocontrollerState(
            name=text_of(document, "name"),
            board=text_of(document, "board"),
            uuid=str(uuid.UUID(text_of(document, "uuid"))),
            hardware=Hardware(
                text_of(hardware, "machine"),
                text_of(hardware, "cpu"),
                1,
                number_of(hardware, "memory", _LARGEST_MEMORY),
                icount=True,
            ),
            clock=number_of(document, "clock", _LARGEST_CLOCK),
            wanted=flag_of(document, "wanted"),
        )
        if state.name != folder.name or not NAME_PATTERN.fullmatch(state.name):
            raise ValueError("it is about another twin")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise DeviceError(
            f"what is written about the twin {folder.name} is damaged: {error}",
            hint=f"edgekit twin down {folder.name} --delete removes it; then start it anew",
        ) from error
    return state


def condition_of(folder: Path) -> Literal["running", "blank", "paused"]:
    """Of one that runs: blank before its first firmware."""
    with qmp.connected(folder / qemu.QMP_SOCKET) as control:
        said = control.execute("query-status").get("status")
    if said == "prelaunch":
        return "blank"
    return "paused" if said == "paused" else "running"


def stop(
    folder: Path, delete: bool, events: Events
) -> Literal["powered off", "killed", "was not running"]:
    """End it; a firmware has nothing to save. To be called with the twin's lock."""
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
    """What a twin's timer counted, in instructions."""
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
    _write(folder, state)  # before QEMU runs: what is found running must be known
    said = _launch(folder, state)
    if said is not None:
        _write(folder, replace(state, wanted=False))
        raise DeviceError(
            f"the emulator does not start: {said or 'it says nothing'}",
            hint=f"the board's twin table must fit this QEMU ({qemu.MICROCONTROLLERS} -M help "
            "lists its machines)",
        )
    return state


def command_line(folder: Path, state: MicrocontrollerState) -> list[str]:
    """Everything that QEMU is told. Sockets are named relative to the twin's folder: such a name
    may not be long."""
    line = f"socket,id=line,path={LINE_SOCKET},server=on,wait=off"
    return [
        *("-name", f"edgekit-twin-{state.name}", "-uuid", state.uuid),
        *("-machine", state.hardware.machine, "-accel", "tcg,thread=single"),
        *("-icount", f"shift={COUNT_SHIFT},sleep=on"),
        *("-display", "none", "-monitor", "none", "-nodefaults"),
        *("-chardev", line, "-serial", "chardev:line"),
        *("-qmp", f"unix:{qemu.QMP_SOCKET},server=on,wait=off"),
        *("-gdb", f"unix:{GDB_SOCKET},server=on,wait=off", "-S"),
        *("-D", str(folder / "qemu.log"), "-daemonize"),
    ]


def _launch(folder: Path, state: MicrocontrollerState) -> str | None:
    """None where it runs, else what QEMU said."""
    for name in (qemu.QMP_SOCKET, GDB_SOCKET, LINE_SOCKET):
        (folder / name).unlink(missing_ok=True)
    program = find_tool(qemu.MICROCONTROLLERS)
    assert program is not None, "require_tools comes first"
    with interrupts_deferred():
        try:
            started = run(
                [str(program), *command_line(folder, state)],
                folder=folder,
                limit_s=_START_SECONDS,
            )
        except TimeoutExpired as error:
            raise DeviceError(
                "the emulator does not start",
                hint=f"{qemu.MICROCONTROLLERS} --version should answer at once; is this machine "
                "overloaded?",
            ) from error
    if started.status == 0:
        return None
    return " ".join(started.errors.split())[:500]


def _write(folder: Path, state: MicrocontrollerState) -> None:
    with storage_errors("write down what the twin is", folder):
        write_atomically(folder / STATE_FILE, json_text(state) + "\n")
