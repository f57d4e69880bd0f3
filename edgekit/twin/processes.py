"""The folders of twins, the locks on them, and the emulators that belong to them: of every kind."""

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
    return twins_dir() / "machines"


def twin_folder(name: str) -> Path:
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a twin", hint=f"use {NAME_EXPECTED}")
    return machines_dir() / name


def our_processes() -> list[qemu.Process]:
    """Twins of this cache; another cache's are somebody else's. Of one that is there twice, what
    stays comes last."""
    ours = [process for process in qemu.running() if process.folder.parent == machines_dir()]
    return sorted(ours, key=lambda process: process.is_daemon)


def process_of(folder: Path) -> qemu.Process | None:
    found = [process for process in our_processes() if process.folder == folder]
    return found[-1] if found else None


def end_any(folder: Path) -> None:
    for process in our_processes():
        if process.folder == folder:
            end(process)


def end(process: qemu.Process) -> None:
    """End QEMU at once."""
    qemu.kill(process)
    if not qemu.wait_until_gone(process, QUIT_SECONDS):
        raise DeviceError(
            f"the emulator (process {process.pid}) cannot be ended",
            hint="it waits for the kernel, for a disk perhaps; try again later",
        )


@contextmanager
def locked(folder: Path, events: Events) -> Iterator[None]:
    with storage_errors("make the folder of the twins", machines_dir()):
        machines_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = f"another edgekit is busy with the twin {folder.name}; waiting for it"
    with exclusive_lock(folder.with_suffix(".lock"), on_wait=lambda: events.note(waiting)):
        yield
