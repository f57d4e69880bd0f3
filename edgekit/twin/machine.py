"""Starting, finding and stopping twins. One folder a twin, one lock a twin."""

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
from edgekit.base.wording import did_you_mean
from edgekit.profiles.board import Board
from edgekit.twin import microcontroller, qemu, qmp
from edgekit.twin.access import Access, access_of, make_keys, seed, write_access
from edgekit.twin.image import Image, held_image
from edgekit.twin.ports import choose_port, is_free
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
from edgekit.twin.tools import TO_RUN, require_tools

Condition = Literal["running", "blank", "paused", "stopped", "died", "damaged", "stray"]

_DEFAULT_MEMORY = 1 << 30
_READY_SECONDS = 180.0
_ASK_SECONDS = 20.0
_POWER_OFF_SECONDS = 60.0
"""Of a system that has said it will."""
_LEFT_SECONDS = 20.0
"""Of one that has not: it heard nothing, or was gone before it could answer."""
_AWAKE_SECONDS = 30.0
"""For an emulator to answer that may have been started only now, on a busy machine."""
_SECONDS_BETWEEN_TRIES = 0.1
_PORT_TRIES = 5


@dataclass(frozen=True)
class TwinStatus:
    name: str
    condition: Condition
    board: str | None = None
    pid: int | None = None
    hardware: Hardware | None = None
    disk_bytes: int = 0
    """What the twin itself has written."""
    access: Access | None = None
    serial: str | None = None
    """The serial line of a microcontroller's."""
    problem: str | None = None


@dataclass(frozen=True)
class Started:
    """A twin that answers."""

    name: str
    board: str
    already_running: bool
    seconds: float
    hardware: Hardware
    access: Access
    init: Init


@dataclass(frozen=True)
class Stopped:
    name: str
    how: Literal["powered off", "killed", "was not running"]
    deleted: bool


def up(
    name: str,
    board: Board,
    *,
    fresh: bool = False,
    init: Init | None = None,
    icount: bool | None = None,
    recipe: Recipe | None = None,
    limit_s: float = _READY_SECONDS,
    events: Events = SILENT,
) -> Started:
    """Have a twin of that name that answers; `fresh` forgets what its disk holds, and is needed to
    have another `init` on it. With `icount` its clock counts instructions; None leaves that as it
    was.

    Does nothing but wait for the answer where it runs already.
    """
    began = time.monotonic()
    plain = hardware_of(board)
    require_tools(TO_RUN, "a twin")
    folder = twin_folder(name)
    with locked(folder, events):
        state = read_state(folder)
        if state is not None and state.board != board.name:
            raise UsageError(
                f"the twin {name} is one of the board {state.board}, not of {board.name}",
                hint=f"choose another --name, or remove it: edgekit twin down {name} --delete",
            )
        has = DEFAULT_INIT if state is None else state.init
        if state is not None and init not in (None, has) and not fresh:
            raise UsageError(
                f"the twin {name} has {has} as its init, not {init}",
                hint="choose another --name, or give it a new disk with --fresh",
            )
        counted = state is not None and state.hardware.icount
        wanted = counted if icount is None else icount
        process = None if fresh else _take_over(folder, state)
        if process is not None and counted != wanted:
            raise UsageError(
                f"the twin {name} runs {'with' if counted else 'without'} --icount",
                hint=f"stop it first: edgekit twin down {name}",
            )
        hardware = counting_instructions(plain) if wanted else plain
        already = state is not None and process is not None
        if state is None or process is None:
            end_any(folder)
            made_of = _Ingredients(board.name, hardware, init or has, recipe)
            state = _start(folder, made_of, state, fresh, events)
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
    """Stop a twin in good order, or at all events; `delete` removes its disk and keys as well."""
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


def pause(name: str) -> None:
    """Stop the twin's clock and CPUs: to the outside, a board that hangs."""
    with qmp.connected(_running_folder(name) / qemu.QMP_SOCKET) as control:
        control.execute("stop")


def resume(name: str) -> None:
    with qmp.connected(_running_folder(name) / qemu.QMP_SOCKET) as control:
        control.execute("cont")


def status(name: str) -> TwinStatus:
    found = _status(twin_folder(name), process_of(twin_folder(name)))
    if found is None:
        raise _unknown(name)
    return found


def is_running(name: str) -> bool:
    return process_of(twin_folder(name)) is not None


def all_twins() -> tuple[TwinStatus, ...]:
    """Every twin there is, running or not, and whatever else of ours still runs."""
    processes = {process.folder: process for process in our_processes()}
    folders = set(processes)
    if machines_dir().is_dir():
        folders |= {path for path in machines_dir().iterdir() if path.is_dir()}
    found = (_status(folder, processes.get(folder)) for folder in sorted(folders))
    return tuple(twin for twin in found if twin is not None)


def find_twin(word: str) -> TwinStatus:
    """The twin of that name, or the one twin of that board."""
    twins = all_twins()
    for twin in twins:
        if twin.name == word:
            return twin
    of_board = [twin for twin in twins if twin.board == word]
    if len(of_board) == 1:
        return of_board[0]
    if of_board:
        names = ", ".join(twin.name for twin in of_board)
        raise UsageError(f"there are several twins of {word}: {names}", hint="name one of them")
    raise _unknown(word)


def hardware_of(board: Board) -> Hardware:
    """What QEMU emulates for this board: its CPU, as many cores as this machine can give."""
    twin = board.twin
    if board.kind != "linux" or twin is None or twin.emulator != qemu.EMULATOR:
        raise UsageError(
            f"the board {board.name} has no twin that runs Linux",
            hint="edgekit boards lists the boards; those of kind linux have one",
        )
    cores = max(1, min(board.cpu.cores, os.cpu_count() or 1))
    return Hardware(twin.machine, twin.cpu, cores, twin.memory or _DEFAULT_MEMORY)


def counting_instructions(hardware: Hardware) -> Hardware:
    """QEMU counts those of one core only."""
    return replace(hardware, cores=1, icount=True)


@dataclass(frozen=True)
class _Ingredients:
    board: str
    hardware: Hardware
    init: Init
    recipe: Recipe | None
    """Another one than the init's own."""


def _start(
    folder: Path, made_of: _Ingredients, before: TwinState | None, fresh: bool, events: Events
) -> TwinState:
    with held_image(made_of.recipe or recipe_for(made_of.init), events) as image:
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
            write_state(folder, state)  # before QEMU runs: whoever finds it must know what it is
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
    kept = qemu.disk_of(folder).is_file() and before is not None
    if kept and not fresh and before is not None and before.image != image.digest:
        events.warn(
            f"the twin {folder.name} gets a new disk: the image that its old one lay on has changed"
        )
    if fresh or not kept or (before is not None and before.image != image.digest):
        qemu.make_disk(folder, image)


def _take_over(folder: Path, state: TwinState | None) -> qemu.Process | None:
    """The twin's process, awake; None where there is none, or one that nobody knows any more."""
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
    # Again: QEMU gets a new process id while it starts, and may fail to.
    return process_of(folder)


def _power_off(process: qemu.Process, folder: Path, state: TwinState) -> bool:
    """Ask the system to shut down; False where it doesn't in time."""
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
        written = disk.stat().st_blocks * 512 if disk.is_file() else 0
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
        written,
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


def _running_folder(name: str) -> Path:
    folder = twin_folder(name)
    if process_of(folder) is None:
        raise DeviceError(f"the twin {name} does not run", hint=f"edgekit twin up {name}")
    return folder


def _unknown(word: str) -> UsageError:
    names = [twin.name for twin in all_twins()]
    otherwise = f"edgekit twin up {word} makes one, if {word} is a board"
    return UsageError(f"there is no twin {word}", hint=did_you_mean(word, names, otherwise))
