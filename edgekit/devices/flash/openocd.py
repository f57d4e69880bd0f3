"""Writes through OpenOCD: most debug probes, most chips."""

from __future__ import annotations

from edgekit.base.errors import UsageError
from edgekit.devices.flash.job import (
    LOCKED,
    NO_PROBE,
    NO_PROBE_HINT,
    NO_TARGET,
    NO_TARGET_HINT,
    VERIFY_FAILED,
    VERIFY_HINT,
    WRONG_CHIP,
    WRONG_CHIP_HINT,
    FlashJob,
    explained,
    failure,
)

FAILURES = (
    failure(
        r"libusb_open\(\) failed with LIBUSB_ERROR_ACCESS|insufficient permissions",
        "this user may not use the debug probe of {device}",
        "install OpenOCD's udev rules (60-openocd.rules), then plug the probe in again",
    ),
    failure(
        r"LIBUSB_ERROR_BUSY|resource busy|address already in use|couldn't bind .* to socket",
        "the debug probe of {device} is in use by another program",
        "close the other debugger",
    ),
    failure(
        r"(device|open|adapter).{0,40}not found|no device found|error: open failed"
        r"|unable to find.*(probe|device|cmsis)|no J-Link device found",
        NO_PROBE,
        NO_PROBE_HINT,
    ),
    failure(
        r"readout protect|device (is )?(locked|protected)|flash.*(is|was) (write )?protected"
        r"|AP.*(locked|protected)|device security bit set",
        LOCKED,
        "unlocking erases the chip: with OpenOCD, `stm32f4x unlock 0` or `nrf5 mass_erase`",
    ),
    failure(
        r"unexpected idcode|UNEXPECTED:|expected \d+ of \d+: 0x|could not find (the )?core"
        r"|cannot identify target|unknown device id|device id.*unknown|wrong device",
        WRONG_CHIP,
        WRONG_CHIP_HINT,
    ),
    failure(r"verify failed|checksum mismatch|contents differ", VERIFY_FAILED, VERIFY_HINT),
    failure(
        r"target voltage may be too low|init mode failed|unable to connect to the target"
        r"|error connecting dp|cannot read IDR|failed to (read|connect).*(dp|ap|target)"
        r"|target not examined",
        NO_TARGET,
        NO_TARGET_HINT,
    ),
    failure(
        r"couldn't find|can't find .*\.cfg",
        "OpenOCD lacks a script that the profile of {board} names",
        "install a newer OpenOCD, or change [flash] scripts",
    ),
)

NO_PORTS = tuple(
    word
    for service in ("gdb_port", "tcl_port", "telnet_port")
    for word in ("-c", f"{service} disabled")
)
"""Options that close OpenOCD's ports on loopback, which would obey every user of the machine."""


def write(job: FlashJob) -> None:
    program = job.tools.find("openocd", "apt-get install openocd")
    with job.tools.placed(job.firmware.path) as path:
        _program(job, program, path)


def _program(job: FlashJob, program: str, path: str) -> None:
    if any(c in path for c in '{}\\"$[];'):
        raise UsageError(
            f"the path {path} is not one that OpenOCD can read",
            hint="move the bundle to another folder",
        )
    words = [word for script in job.flash.scripts for word in ("-f", script)]
    if job.probe is not None:
        words += ["-c", f"adapter serial {job.probe}"]
    words += ["-c", f"program {{{path}}} verify reset exit"]
    said = job.tools.run([program, *NO_PORTS, *words])
    if said.status != 0 or "** Verified OK **" not in said.output:
        raise explained(job, "OpenOCD", said.output, FAILURES)
