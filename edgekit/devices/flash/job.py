"""A firmware and its target, and the meaning of a tool's failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.aot.firmware.firmware_file import FirmwareFile
from edgekit.base.errors import DeviceError
from edgekit.devices.flash.tool import HERE, Tools
from edgekit.profiles.board import Board
from edgekit.profiles.hardware import Flash

_LAST_LINES = 12


@dataclass(frozen=True)
class FlashJob:
    firmware: FirmwareFile
    board: Board
    flash: Flash
    device: str
    """Name of the device, for messages."""
    port: str | None = None
    """Serial line of the device, for boot loaders."""
    probe: str | None = None
    """Serial number of its debug probe, if several are attached."""
    twin: Path | None = None
    """Folder of a twin's sockets."""
    gdb: str = "gdb-multiarch"
    tools: Tools = HERE
    """Tools of the machine that the board is attached to."""


@dataclass(frozen=True)
class Failure:
    """A failure of a tool, recognized by the tool's message."""

    pattern: re.Pattern[str]
    what: str
    """Sentence for the user about {device}, {board} and {machine}."""
    hint: str


def failure(pattern: str, what: str, hint: str) -> Failure:
    return Failure(re.compile(pattern, re.IGNORECASE | re.MULTILINE), what, hint)


# What happened, and what to do.
NO_PROBE = (
    "no debug probe is attached to {machine} that could write to {device}",
    "plug it in; ordinary users need its udev rules, which come with openocd and pyocd",
)
WRONG_CHIP = (
    "the chip of {device} is not that of a {board}",
    "check the name of the board, and [flash] in the board's profile",
)
VERIFY_FAILED = (
    "the firmware read back from {device} differs from the one written",
    "try again; if it stays so, the flash is worn out or the power unsteady",
)
NO_TARGET = (
    "the debug probe finds no chip on {device}",
    "is the board powered, and the cable in the right connector?",
)
LOCKED = "the chip of {device} is locked against being written to or read"


def explained(job: FlashJob, tool: str, output: str, failures: Sequence[Failure]) -> DeviceError:
    """Return the error that explains a failure, with the tool's last lines as details."""
    lines = tuple(line.rstrip() for line in output.splitlines() if line.strip())
    for each in failures:
        if each.pattern.search(output):
            return DeviceError(
                each.what.format(
                    device=job.device, board=job.board.name, machine=job.tools.machine
                ),
                hint=each.hint,
                details=lines[-_LAST_LINES:],
            )
    return DeviceError(
        f"{tool} could not write the firmware to {job.device}",
        hint="its last lines are above; `edgekit boards show` prints the profile's [flash]",
        details=lines[-_LAST_LINES:] or ("it said nothing",),
    )
