"""The watch over a microcontroller: whether its line is free and its firmware answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgekit.devices.base import DeviceBusy

if TYPE_CHECKING:
    from edgekit.devices.device import HasLine

SECONDS_BETWEEN_QUESTIONS = 30.0
_SECONDS_TO_ANSWER = 10.0
"""The time limit for the firmware; long, as a busy host takes seconds, and others wait for it."""


def watch_line(device: HasLine, say: Callable[[dict[str, object]], None]) -> None:
    """Report the device's state until it is lost; DeviceError says why."""
    with device.looking() as hold:
        said, asked = "", -SECONDS_BETWEEN_QUESTIONS
        while True:
            try:
                with hold() as line:
                    if time.monotonic() - asked >= SECONDS_BETWEEN_QUESTIONS or not said:
                        device.check_answer(line, _SECONDS_TO_ANSWER)
                        asked = time.monotonic()
                found = "free"
            except DeviceBusy:
                found = "in use"
            if not said:
                say({"state": "up", "is_emulated": device.is_emulated})
            if found != said:
                say({"state": found})
                said = found
            time.sleep(device.seconds_between_looks)
