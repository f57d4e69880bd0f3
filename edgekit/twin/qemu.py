"""The QEMU process of a twin: starting, finding and ending it."""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from edgekit.base.children import TimeoutExpired, run
from edgekit.base.errors import DeviceError, StorageError
from edgekit.base.files import storage_errors
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.quoting import qemu_value
from edgekit.profiles.architecture import architectures
from edgekit.twin.access import HOST
from edgekit.twin.image import Image
from edgekit.twin.state import TwinState
from edgekit.twin.tools import find_tool

CONSOLE, OLD_CONSOLE, QMP_SOCKET = "console.log", "console.previous.log", "qmp"
_DISK, _INITRAMFS, _LOG = "disk.qcow2", "initramfs", "qemu.log"
_START_SECONDS = 60
_KERNEL_OPTIONS = " ".join(
    [
        *("quiet", "panic=5"),
        # Features that a twin does not need. They took a third of its start.
        *("audit=0", "apparmor=0", "lsm=", "cryptomgr.notests", "nokaslr", "mitigations=off"),
    ]
)
# One nanosecond of the twin's clock per instruction. While idle, its clock follows the host's: a
# jump to the next timer would end every timeout before the network answers.
_COUNT_INSTRUCTIONS = ("-icount", "shift=0,sleep=on")
_TOOL_SECONDS = 60
_SESSION = 3
"""The session's place in /proc/PID/stat after the name. QEMU is started in its own session."""
_PORT_TAKEN = re.compile(r"could not set up host forwarding rule", re.IGNORECASE)


class PortTakenError(DeviceError):
    """Another program has taken the port."""


@dataclass(frozen=True)
class Process:
    """A running QEMU of a twin."""

    pid: int
    uuid: str
    folder: Path
    """The twin's folder, which may have been deleted."""
    is_daemon: bool = True
    """False for the started process, which ends once the daemon that it forked emulates."""


def disk_of(folder: Path) -> Path:
    """Return the disk of a twin."""
    return folder / _DISK


def make_disk(folder: Path, image: Image) -> None:
    """Make an empty layer over the image's disk: a twin's writes stay its own."""
    disk = disk_of(folder)
    disk.unlink(missing_ok=True)
    made = run(
        [
            _tool("qemu-img"),
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "-b",
            str(image.disk),
            str(disk),
        ],
        limit_s=_TOOL_SECONDS,
    )
    if made.status != 0:
        disk.unlink(missing_ok=True)
        raise StorageError(
            f"the twin's disk could not be made: {words_of(made.errors)}",
            hint="free some space, or move the cache with EDGEKIT_CACHE_DIR",
        )


def command_line(state: TwinState, image: Image, folder: Path) -> list[str]:
    """Return QEMU's command line. The twin reaches no network; one loopback port leads to it."""
    hardware, guest = state.hardware, architectures()[state.hardware.arch].guest
    assert guest is not None, "hardware_of refuses the others"
    forward = f"hostfwd=tcp:{HOST}:{state.port}-:22"
    return [
        *("-name", f"edgekit-twin-{state.name}", "-uuid", state.uuid),
        *("-machine", hardware.machine, "-cpu", hardware.cpu, "-smp", str(hardware.cores)),
        *("-accel", f"tcg,thread={'single' if hardware.icount else 'multi'}"),
        *(_COUNT_INSTRUCTIONS if hardware.icount else ()),
        *("-m", f"{hardware.memory >> 20}M"),
        *("-kernel", str(image.kernel), "-initrd", str(folder / _INITRAMFS)),
        *("-append", f"console={guest.console} {_KERNEL_OPTIONS}"),
        *("-drive", f"file={qemu_value(disk_of(folder))},if=none,id=disk,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=disk,romfile="),
        *("-netdev", f"user,id=network,restrict=on,{forward}"),
        *("-device", "virtio-net-pci,netdev=network,romfile="),
        *("-rtc", "base=utc", "-display", "none", "-monitor", "none", "-nodefaults"),
        *(
            "-chardev",
            f"file,id=console,path={qemu_value(folder / CONSOLE)}",
            "-serial",
            "chardev:console",
        ),
        *("-qmp", f"unix:{QMP_SOCKET},server=on,wait=off"),
        *("-D", str(folder / _LOG), "-daemonize"),
    ]


def start(state: TwinState, image: Image, folder: Path, seed: bytes) -> None:
    """Start QEMU. Return once it emulates."""
    with storage_errors("prepare the twin's start", folder):
        initramfs = folder / _INITRAMFS
        initramfs.unlink(missing_ok=True)
        initramfs.touch(mode=0o600)  # the host key is in it
        initramfs.write_bytes(image.initramfs.read_bytes() + seed)
        if (folder / CONSOLE).exists():
            (folder / CONSOLE).replace(folder / OLD_CONSOLE)
        (folder / QMP_SOCKET).unlink(missing_ok=True)
    emulator = architectures()[state.hardware.arch].qemu.system
    said = launch(emulator, command_line(state, image, folder), folder)
    if said is None:
        return
    if _PORT_TAKEN.search(said):
        raise PortTakenError(
            f"port {state.port} on {HOST} is taken by another program",
            hint="start the twin again: it takes a free port",
        )
    raise does_not_start(said, f"{emulator} -cpu help lists its CPUs")


def launch(emulator: str, arguments: Sequence[str], folder: Path) -> str | None:
    """Start an emulator as a daemon. Return None, or its message if it fails."""
    with interrupts_deferred():
        try:
            started = run([_tool(emulator), *arguments], folder=folder, limit_s=_START_SECONDS)
        except TimeoutExpired as error:
            raise DeviceError(
                "the emulator does not start",
                hint=f"{emulator} --version should answer at once; is this host overloaded?",
            ) from error
    return None if started.status == 0 else words_of(started.errors)


def does_not_start(said: str, listing: str) -> DeviceError:
    """Make the error for an emulator that does not start."""
    return DeviceError(
        f"the emulator does not start: {said or 'it says nothing'}",
        hint=f"the board's twin table must fit this QEMU ({listing})",
    )


def running() -> tuple[Process, ...]:
    """List this user's QEMU processes of twins, recognised by their command lines.

    A twin that starts may be listed twice: QEMU forks to become a daemon.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            process = _twin_process(entry)
            if process is not None:
                found.append(process)
    return tuple(found)


def wait_until_gone(process: Process, limit_s: float) -> bool:
    """Wait for a process to end. Return whether it did within the limit."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([handle], [], [], limit_s)
        return bool(ready)
    finally:
        os.close(handle)


def kill(process: Process) -> None:
    """Kill a process, like a power cut. The twin's file system survives that."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            if _twin_process(Path("/proc") / str(process.pid)) == process:  # not a reused id
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _twin_process(entry: Path) -> Process | None:
    try:
        arguments = (entry / "cmdline").read_bytes().split(b"\0")
        if entry.stat().st_uid != os.getuid():
            return None
        status = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # ended meanwhile, or another user's
    emulators = tuple(
        known.qemu.system.encode() for known in architectures().values() if known.qemu.system
    )
    if not arguments[0].endswith(emulators) or status[:1] in (["Z"], ["X"]):
        return None
    texts = [os.fsdecode(argument) for argument in arguments]
    name, uuid, log = (_value(texts, option) for option in ("-name", "-uuid", "-D"))
    if name is None or uuid is None or log is None or not name.startswith("edgekit-twin-"):
        return None
    return Process(int(entry.name), uuid, Path(log).parent, status[_SESSION] != entry.name)


def _value(arguments: Sequence[str], option: str) -> str | None:
    for first, second in pairwise(arguments):
        if first == option:
            return second
    return None


def _tool(name: str) -> str:
    tool = find_tool(name)
    assert tool is not None, "require_tools comes first"
    return str(tool)


def words_of(output: str) -> str:
    """Return a program's message on one line."""
    return " ".join(output.split())[:500]
