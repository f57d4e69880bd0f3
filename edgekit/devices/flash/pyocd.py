"""Writes through pyOCD: CMSIS-DAP, ST-LINK and J-Link probes, with chips from CMSIS packs."""

from __future__ import annotations

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
        r"access denied|permission denied|insufficient permissions",
        "this user may not use the debug probe of {device}",
        "install pyOCD's udev rules, then plug the probe in again",
    ),
    failure(
        r"no available debug probes|no connected debug probes|waiting for a debug probe"
        r"|no probes? (found|with)",
        NO_PROBE,
        NO_PROBE_HINT,
    ),
    failure(
        r"target type .* not recognized",
        "pyOCD does not know the chip that the profile of {board} names",
        "install its pack with `pyocd pack install NAME`, or change [flash] target",
    ),
    failure(
        r"approtect|device is locked|access port.*(locked|protected)|(is|flash).*locked",
        LOCKED,
        "unlocking erases the chip: pyocd erase --mass",
    ),
    failure(r"verif.*fail|programming failed.*verif|miscompare", VERIFY_FAILED, VERIFY_HINT),
    failure(
        r"(idcode|cpuid|part number).*(unexpected|mismatch)|no cores were discovered"
        r"|does not match.*target|unexpected.*(part|cpu)",
        WRONG_CHIP,
        WRONG_CHIP_HINT,
    ),
    failure(
        r"no ack|transfer (fault|timeout|error)|unexpected ack|SWD/JTAG communication failure",
        NO_TARGET,
        NO_TARGET_HINT,
    ),
)


def write(job: FlashJob) -> None:
    program = job.tools.find("pyocd", "pip install pyocd")
    words = ["load", "--no-config", "--no-wait", "--format", "elf", "--target", job.flash.target]
    if job.probe is not None:
        words += ["--uid", job.probe]
    with job.tools.placed(job.firmware.path) as path:
        said = job.tools.run([program, *words, path])
    if said.status != 0:
        raise explained(job, "pyOCD", said.output, FAILURES)
