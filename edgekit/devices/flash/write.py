"""Chooses the driver of a flash job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from edgekit.base.errors import UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import size
from edgekit.devices.flash import emulator, uf2
from edgekit.devices.flash.job import FlashJob
from edgekit.devices.flash.programs import OPENOCD, PYOCD, STM32LOADER, write_with
from edgekit.devices.flash.tool import HERE
from edgekit.profiles.hardware import FlashDriver

_DRIVERS: Mapping[FlashDriver, Callable[[FlashJob], None]] = {
    "qemu": emulator.write,
    "openocd": partial(write_with, OPENOCD),
    "pyocd": partial(write_with, PYOCD),
    "stm32loader": partial(write_with, STM32LOADER),
    "uf2": uf2.write,
}
_ON_THE_SPOT: tuple[FlashDriver, ...] = ("qemu", "uf2")
"""Drivers that need files and sockets of the machine itself."""


def write_firmware(job: FlashJob, events: Events = SILENT) -> int:
    """Write and verify the firmware; return its bytes. DeviceError explains a failure."""
    driver = "qemu" if job.twin is not None else job.flash.driver
    if driver in _ON_THE_SPOT and job.tools is not HERE:
        raise UsageError(
            f"the firmware of {job.device} can only be written on {job.tools.machine} itself",
            hint="copy the bundle to that machine and run edgekit flash on it",
        )
    written = sum(segment.file_size for segment in job.firmware.segments)
    with events.stage(f"write the firmware to {job.device}") as stage:
        _DRIVERS[driver](job)
        stage.result = size(written)
    return written
