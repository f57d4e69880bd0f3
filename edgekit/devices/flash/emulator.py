"""Writes a twin's memory and verifies it with gdb, through QEMU's own debugger port."""

from __future__ import annotations

import re

from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.devices.flash.job import VERIFY_FAILED, FlashJob, explained, failure
from edgekit.twin.microcontroller import GDB_SOCKET

_GONE = failure(
    r"remote connection closed|connection reset|connection refused|target disconnected"
    rf"|^{GDB_SOCKET}: no such file|broken pipe|not being run|timed out",
    "the emulator of {device} ended, or was not running, while its firmware was written",
    "start it again and try again: edgekit twin up",
)
_NO_MEMORY = failure(
    r"cannot access memory|load failed|error writing data",
    "{device} has no memory at the firmware's address",
    "the [[memory.region]] of its profile must be those of the emulated machine",
)
_DIFFERS = failure(r"MIS-MATCHED", *VERIFY_FAILED)
# A gdb that has lost its target compares the file with itself, so this pattern comes first.
FAILURES = (_GONE, _DIFFERS, _NO_MEMORY)
_ALONE = ("-nx", "-iex", "set auto-load off")
"""Options that ignore .gdbinit, and scripts that the firmware names."""
_SECTIONS = re.compile(r"^Section (\S+), range .*: matched\.", re.MULTILINE)


def write(job: FlashJob) -> None:
    if job.twin is None:
        raise UsageError(
            f"{job.device} is not emulated, and only a twin of {job.board.name} can be written",
            hint=f"leave out {option('device')} and give {option('twin')}",
        )
    gdb = job.tools.find(job.gdb, "apt-get install gdb-multiarch")
    orders = (
        "set confirm off",
        "set tcp connect-timeout 5",
        "set remotetimeout 20",
        f"target remote {GDB_SOCKET}",
        "load",
        "compare-sections",
        "monitor system_reset",
        "detach",
    )
    words = [word for order in orders for word in ("-ex", order)]
    said = job.tools.run(
        [gdb, *_ALONE, "-batch", *words, str(job.firmware.path.resolve())], folder=job.twin
    )
    if not _is_written(said.output):
        raise explained(job, "gdb", said.output, FAILURES)


def _is_written(output: str) -> bool:
    """Check gdb's output: gdb goes on after an error, and its exit code is always 0."""
    failed = any(each.pattern.search(output) for each in FAILURES)
    return "Transfer rate" in output and bool(_SECTIONS.search(output)) and not failed
