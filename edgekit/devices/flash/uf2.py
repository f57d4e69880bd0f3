"""Writes through a UF2 boot loader: a USB disk that flashes the files copied to it."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from edgekit.base.errors import DeviceError
from edgekit.devices.flash.image import uf2_blocks
from edgekit.devices.flash.job import FlashJob

_NAME = "firmware.uf2"
_ABOUT = "INFO_UF2.TXT"


def write(job: FlashJob, places: tuple[Path, ...] | None = None) -> None:
    """Copy the firmware to the boot loader's disk; `places` are the folders of mounted disks."""
    label = job.flash.target
    disk = _disk(label, _places() if places is None else places)
    if disk is None:
        raise DeviceError(
            f"no USB disk {label} is mounted for the firmware of {job.device}",
            hint="press its reset button twice, and mount the disk that appears",
        )
    data = uf2_blocks(job.firmware, job.flash.family_id)
    try:
        with (disk / _NAME).open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise DeviceError(
            f"the firmware could not be copied to {disk}: {error.strerror}",
            hint="was it unplugged? reset it twice and try again",
        ) from error


def _disk(label: str, places: tuple[Path, ...]) -> Path | None:
    for place in places:
        if (place / label / _ABOUT).is_file():
            return place / label
    return None


def _places() -> tuple[Path, ...]:
    user = getpass.getuser()
    return (Path("/media") / user, Path("/run/media") / user, Path("/media"), Path("/mnt"))
