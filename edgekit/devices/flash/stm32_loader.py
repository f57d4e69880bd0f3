"""Writes through stm32loader: the boot loader in the ROM of every STM32, over the board's own
serial line."""

from __future__ import annotations

from edgekit.base.errors import UsageError
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.devices.flash.image import one_image
from edgekit.devices.flash.job import (
    LOCKED,
    VERIFY_FAILED,
    VERIFY_HINT,
    WRONG_CHIP,
    WRONG_CHIP_HINT,
    FlashJob,
    explained,
    failure,
)

_BAUD = "115200"
FAILURES = (
    failure(
        r"could not open port|no such file|cannot open|error opening",
        "the serial port of {device} can't be opened",
        "plug it in; `edgekit device list` shows which port it is",
    ),
    failure(
        r"can't init into bootloader|bad reply from bootloader|bootloader activation timeout"
        r"|can't read port or timeout",
        "no boot loader answers on the serial port of {device}",
        "set BOOT0 high, press reset, try again, and set it low afterwards",
    ),
    failure(
        r"NACK 0x(11|31|43|44)|(read|write) memory.*no ack|unprotect failed",
        LOCKED,
        "unlocking erases the chip: stm32loader -u",
    ),
    failure(r"verification FAILED|verify.*fail|data mismatch", VERIFY_FAILED, VERIFY_HINT),
    failure(
        r"unknown (device|chip|product)|not supported|wrong (family|device)|unexpected.*id",
        WRONG_CHIP,
        WRONG_CHIP_HINT,
    ),
)


def write(job: FlashJob) -> None:
    if job.port is None:
        raise UsageError(
            f"the serial port of {job.device} is unknown",
            hint="edgekit device add NAME --board BOARD --port /dev/ttyUSB0",
        )
    program = job.tools.find("stm32loader", "pip install stm32loader")
    with scratch_directory(cache_dir()) as scratch:
        address, data = one_image(job.firmware)
        image = scratch / "firmware.bin"
        image.write_bytes(data)
        words = ["-p", job.port, "-b", _BAUD, "-f", job.flash.target, "-a", f"{address:#010x}"]
        words += ["-g", f"{address:#010x}"]
        with job.tools.placed(image) as path:
            said = job.tools.run([program, "-e", "-w", "-v", *words, path])
    if said.status != 0 or "Verification OK" not in said.output:
        raise explained(job, "stm32loader", said.output, FAILURES)
