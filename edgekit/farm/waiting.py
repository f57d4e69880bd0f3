"""Waiting for what the farm does."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from edgekit.base.errors import DeviceError
from edgekit.base.files import try_lock
from edgekit.farm.control import lock_path
from edgekit.farm.status import FarmStatus

_SECONDS_TO_END = 30.0


def wait_for_end(pid: int) -> None:
    """Its lock is the last thing that it gives back."""
    deadline = time.monotonic() + _SECONDS_TO_END
    while (lock := try_lock(lock_path())) is None:
        if time.monotonic() > deadline:
            raise DeviceError(
                f"the farm (process {pid}) does not end",
                hint=f"kill -9 {pid} ends it, and what belongs to it",
            )
        time.sleep(0.05)
    os.close(lock)


def changed(before: FarmStatus, after: FarmStatus) -> bool:
    """Whether something happened; what passes by itself does not count."""
    return _settled(before) != _settled(after)


def _settled(status: FarmStatus) -> FarmStatus:
    devices = tuple(replace(device, load=None, temperature=None) for device in status.devices)
    return replace(status, now=0.0, devices=devices)
