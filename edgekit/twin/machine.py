"""Starting, finding and stopping twins. Each has a folder and a lock."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors
from edgekit.base.options import option
from edgekit.base.wording import did_you_mean
from edgekit.profiles.architecture import architectures
from edgekit.profiles.board import Board
from edgekit.twin import microcontroller, qemu, qmp
from edgekit.twin.access import (
    Access,
    access_of,
    choose_port,
    is_free,
    make_keys,
    seed,
    write_access,
)
from edgekit.twin.image import Image, held_image
from edgekit.twin.processes import (
    end,
    end_any,
    locked,
    machines_dir,
    our_processes,
    process_of,
    twin_folder,
)
from edgekit.twin.readiness import run_over_ssh, wait_until_ready
from edgekit.twin.recipe import Recipe
from edgekit.twin.state import Hardware, TwinState, read_state, write_state
from edgekit.twin.systemd import DEFAULT_INIT, Init, recipe_for
from edgekit.twin.tools import require_tools, to_run

Condition = Literal["running", "blank", "paused", "stopped", "died", "damaged", "stray"]

_DEFAULT_MEMORY = 1 << 30
_READY_SECONDS = 180.0
_ASK_SECONDS = 20.0
_POWER_OFF_SECONDS = 60.0
"""The time for a system that has accepted the command to power off."""
_LEFT_SECONDS = 20.0
"""The time for a system that has not answered it, or was off before it could."""
_AWAKE_SECONDS = 30.0
"""The time for a new emulator to answer on a busy host."""
_SECONDS_BETWEEN_TRIES = 0.1
_PORT_TRIES = 5


@dataclass(frozen=True)
class TwinStatus:
    """The status of a twin."""

    name: str
    condition: Condition
    board: str | None = None
    pid: int | None = None
    hardware: Hardware | None = None
    disk_bytes: int = 0
    """The bytes that the twin has written to its disk."""
    access: Access | None = None
    serial: str | None = None
    """The serial line of a microcontroller's twin."""
    problem: str | None = None


@dataclass(frozen=True)
class Started:
    """A running twin that answers."""

    name: str
    board: str
    already_running: bool
    seconds: float
    hardware: Hardware
    access: Access
    init: Init


@dataclass(frozen=True)
class Stopped:
    """The end of a twin."""

    name: str
    how: Literal["powered off", "killed", "was not running"]
    deleted: bool


@dataclass(frozen=True)
class StartOptions:
    """Choices for the start of a twin."""

    fresh: bool = False
    """Whether to discard the disk. A change of `init` needs it."""
    init: Init | None = None
    """The init; None keeps the twin's."""
    icount: bool | None = None
    """Whether the clock counts instructions; None keeps the twin's."""
    recipe: Recipe | None = None
    """An image other than the init's own."""


AS_BEFORE = StartOptions()
"""The options that keep what a twin has."""


def up(
    name: str,
    board: Board,
    options: StartOptions = AS_BEFORE,
    *,
    limit_s: float = _READY_SECONDS,
    events: Events = SILENT,
) -> Started:
    """Start a twin or find it running, and wait until it answers."""
    began = time.monotonic()
    plain = hardware_of(board)
    require_tools(to_run(plain.arch), "a twin")
    folder = twin_folder(name)
    with locked(folder, events):
        state = read_state(folder)
        if state is not None and state.board != board.name:
            raise UsageError(
                f"the twin {name} is one of the board {state.board}, not of {board.name}",
                hint=f"choose another {option('name')}, or remove it: edgekit twin down {name} "
                "--delete",
            )
        has = DEFAULT_INIT if state is None else state.init
        if state is not None and options.init not in (None, has) and not options.fresh:
            raise UsageError(
                f"the twin {name} has {has} as its init, not {options.init}",
                hint=f"choose another {option('name')}, or give it a new disk with "
                f"{option('fresh')}",
            )
        counted = state is not None and state.hardware.icount
        wanted = counted if options.icount is None else options.icount
        process = None if options.fresh else _take_over(folder, state)
        if process is not None and counted != wanted:
            raise UsageError(
                f"the twin {name} runs {'with' if counted else 'without'} {option('icount')}",
                hint=f"stop it first: edgekit twin down {name}",
            )
        hardware = counting_instructions(plain) if wanted else plain
        already = state is not None and process is not None
        if state is None or process is None:
            end_any(folder)
            made_of = _Ingredients(board.name, hardware, options.init or has, options.recipe)
            state = _start(folder, made_of, state, options.fresh, events)
            process = process_of(folder)
        access = write_access(folder, name, state.port)
        try:
            wait_until_ready(access, folder, process, limit_s, events, known_to_work=already)
        except BaseException:
            if process is not None and not already:
                end(process)
                write_state(folder, replace(state, wanted=False))
            raise
    seconds = time.monotonic() - began
    return Started(name, board.name, already, seconds, state.hardware, access, state.init)


def down(name: str, *, delete: bool = False, events: Events = SILENT) -> Stopped:
    """Power a twin off, or kill it if that fails; `delete` removes its disk and keys too."""
    folder = twin_folder(name)
    with locked(folder, events):
        if microcontroller.is_one(folder):
            return Stopped(name, microcontroller.stop(folder, delete, events), delete)
        try:
            state = read_state(folder)
        except DeviceError:
            if not delete:
                raise
            state = None
        process = process_of(folder)
        if not folder.exists() and process is None:
            raise _unknown(name)
        how: Literal["powered off", "killed", "was not running"] = "was not running"
        if process is not None:
            with events.stage(f"stop {name}") as stage:
                orderly = state is not None and _power_off(process, folder, state)
                if not orderly:
                    end(process)
                how = "powered off" if orderly else "killed"
                stage.result = how
        if delete:
            with storage_errors("remove the twin", folder):
                shutil.rmtree(folder, ignore_errors=False)
        elif state is not None and state.wanted:
            write_state(folder, replace(state, wanted=False))
    return Stopped(name, how, delete)


def status(name: str) -> TwinStatus:
    """Return the status of a twin."""
    found = _status(twin_folder(name), process_of(twin_folder(name)))
    if found is None:
        raise _unknown(name)
    return found


def is_running(name: str) -> bool:
    """Tell whether a twin runs."""
    return process_of(twin_folder(name)) is not None


def all_twins() -> tuple[TwinStatus, ...]:
    """List all twins, and emulators whose twin's folder is gone."""
    processes = {process.folder: process for process in our_processes()}
    folders = set(processes)
    if machines_dir().is_dir():
        folders |= {path for path in machines_dir().iterdir() if path.is_dir()}
    found = (_status(folder, processes.get(folder)) for folder in sorted(folders))
    return tuple(twin for twin in found if twin is not None)


def find_twin(word: str) -> TwinStatus:
    """Find a twin by its name, or by its board if that has only one."""
    twins = all_twins()
    for twin in twins:
        if twin.name == word:
            return twin
    of_board = [twin for twin in twins if twin.board == word]
    if len(of_board) == 1:
        return of_board[0]
    if of_board:
        names = ", ".join(twin.name for twin in of_board)
        raise UsageError(f"{word} has several twins: {names}", hint="name one of them")
    raise _unknown(word)


def hardware_of(board: Board) -> Hardware:
    """Return the emulated hardware of a board, with no more cores than the host has."""
    twin = board.twin
    if not board.has_os or twin is None or architectures()[board.cpu.arch].guest is None:
        raise UsageError(
            f"the board {board.name} has no twin that runs Linux",
            hint="edgekit boards show tells which boards have one",
        )
    cores = max(1, min(board.cpu.cores, os.cpu_count() or 1))
    memory = twin.memory or _DEFAULT_MEMORY
    return Hardware(twin.machine, twin.cpu, cores, memory, arch=board.cpu.arch)


def counting_instructions(hardware: Hardware) -> Hardware:
    """Make the clock count instructions. QEMU can do so with one core only."""
    return replace(hardware, cores=1, icount=True)


@dataclass(frozen=True)
class _Ingredients:
    board: str
    hardware: Hardware
    init: Init
    recipe: Recipe | None
    """An image other than the init's own."""


def _start(
    folder: Path, made_of: _Ingredients, before: TwinState | None, fresh: bool, events: Events
) -> TwinState:
    with held_image(
        made_of.recipe or recipe_for(made_of.init, made_of.hardware.arch), events
    ) as image:
        with storage_errors("make the twin's folder", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_keys(folder)
        _lay_disk(folder, image, before, fresh, events)
        port = before.port if before is not None and is_free(before.port) else choose_port()
        for remaining in reversed(range(_PORT_TRIES)):
            state = TwinState(
                name=folder.name,
                board=made_of.board,
                uuid=str(uuid.uuid4()),
                hardware=made_of.hardware,
                init=made_of.init,
                image=image.digest,
                port=port,
                wanted=True,
            )
            write_state(folder, state)  # before QEMU runs, so that its process is recognised
            try:
                qemu.start(state, image, folder, seed(folder, folder.name))
            except qemu.PortTakenError:
                if not remaining:
                    raise
                port = choose_port()
            except EdgekitError:
                write_state(folder, replace(state, wanted=False))
                raise
            else:
                break
    return state


def _lay_disk(
    folder: Path, image: Image, before: TwinState | None, fresh: bool, events: Events
) -> None:
    exists = qemu.disk_of(folder).is_file() and before is not None
    is_changed = before is not None and before.image != image.digest
    if exists and is_changed and not fresh:
        events.warn(
            f"the twin {folder.name} gets a new disk: the image below its old one has changed"
        )
    if fresh or not exists or is_changed:
        qemu.make_disk(folder, image)


def _take_over(folder: Path, state: TwinState | None) -> qemu.Process | None:
    """Find and resume a twin's process. Return None for none, or for one with another mark."""
    process = process_of(folder)
    if state is None or process is None or process.uuid != state.uuid:
        return None
    ends_at = time.monotonic() + _AWAKE_SECONDS
    while process is not None:
        try:
            _resume(folder)
        except qmp.QmpError:
            process = process_of(folder)
            if process is not None and time.monotonic() > ends_at:
                raise
            time.sleep(_SECONDS_BETWEEN_TRIES)
        else:
            break
    # Asked again: QEMU gets a new process id while it starts, and may fail to.
    return process_of(folder)


def _power_off(process: qemu.Process, folder: Path, state: TwinState) -> bool:
    """Power a twin off. Return whether it ended in time."""
    patience = _POWER_OFF_SECONDS
    try:
        _resume(folder)
        access = access_of(folder, state.name, state.port)
        run_over_ssh(access, "sudo /usr/sbin/poweroff", limit_s=_ASK_SECONDS)
    except EdgekitError:
        patience = _LEFT_SECONDS
    return qemu.wait_until_gone(process, patience)


def _resume(folder: Path) -> None:
    with qmp.connected(folder / qemu.QMP_SOCKET) as control:
        if control.execute("query-status").get("status") == "paused":
            control.execute("cont")


def _status(folder: Path, process: qemu.Process | None) -> TwinStatus | None:
    pid = process.pid if process else None
    if microcontroller.is_one(folder):
        return _microcontroller(folder, process)
    try:
        state = read_state(folder)
        if state is None:
            return TwinStatus(folder.name, "stray", pid=pid) if process else None
        access = access_of(folder, state.name, state.port)
        disk = qemu.disk_of(folder)
        disk_bytes = disk.stat().st_blocks * 512 if disk.is_file() else 0
    except EdgekitError as error:
        return TwinStatus(folder.name, "damaged", pid=pid, problem=error.message)
    condition: Condition = "died" if state.wanted else "stopped"
    problem = None
    if process is not None and process.uuid == state.uuid:
        condition = "running"
        try:
            with qmp.connected(folder / qemu.QMP_SOCKET) as control:
                if control.execute("query-status").get("status") == "paused":
                    condition = "paused"
        except qmp.QmpError as error:
            problem = error.message
    return TwinStatus(
        state.name,
        condition,
        state.board,
        pid,
        state.hardware,
        disk_bytes,
        access,
        problem=problem,
    )


def _microcontroller(folder: Path, process: qemu.Process | None) -> TwinStatus:
    pid = process.pid if process else None
    try:
        state = microcontroller.read(folder)
    except DeviceError as error:
        return TwinStatus(folder.name, "damaged", pid=pid, problem=error.message)
    condition: Condition = "died" if state.wanted else "stopped"
    problem = None
    if process is not None and process.uuid == state.uuid:
        try:
            condition = microcontroller.condition_of(folder)
        except qmp.QmpError as error:
            condition, problem = "running", error.message
    return TwinStatus(
        state.name,
        condition,
        state.board,
        pid,
        state.hardware,
        serial=microcontroller.address_of(folder),
        problem=problem,
    )


def _unknown(word: str) -> UsageError:
    names = [twin.name for twin in all_twins()]
    otherwise = f"edgekit twin up {word} makes one, if {word} is a board"
    return UsageError(f"there is no twin {word}", hint=did_you_mean(word, names, otherwise))
