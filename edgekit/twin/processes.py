"""Folders, locks and emulator processes of twins of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.events import Events
from edgekit.base.files import exclusive_lock, storage_errors
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN
from edgekit.twin import qemu
from edgekit.twin.image import twins_dir

QUIT_SECONDS = 5.0


def machines_dir() -> Path:
    """Return the folder that holds a folder per twin."""
    return twins_dir() / "machines"


def twin_folder(name: str) -> Path:
    """Return a twin's folder; raise UsageError for an invalid name."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a twin", hint=f"use {NAME_EXPECTED}")
    return machines_dir() / name


def our_processes() -> list[qemu.Process]:
    """List emulators of this cache's twins. If one is listed twice, the daemon comes last."""
    ours = [process for process in qemu.running() if process.folder.parent == machines_dir()]
    return sorted(ours, key=lambda process: process.is_daemon)


def process_of(folder: Path) -> qemu.Process | None:
    """Find a twin's emulator."""
    found = [process for process in our_processes() if process.folder == folder]
    return found[-1] if found else None


def end_any(folder: Path) -> None:
    """End every emulator of a twin."""
    for process in our_processes():
        if process.folder == folder:
            end(process)


def end(process: qemu.Process) -> None:
    """Kill an emulator; raise DeviceError if it goes on."""
    qemu.kill(process)
    if not qemu.wait_until_gone(process, QUIT_SECONDS):
        raise DeviceError(
            f"the emulator (process {process.pid}) cannot be ended",
            hint="the kernel holds it, perhaps for a disk; try again later",
        )


@contextmanager
def locked(folder: Path, events: Events) -> Iterator[None]:
    """Hold a twin's lock."""
    with storage_errors("make the folder of the twins", machines_dir()):
        machines_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = f"waiting for another edgekit to finish with the twin {folder.name}"
    with exclusive_lock(folder.with_suffix(".lock"), on_wait=lambda: events.note(waiting)):
        yield
