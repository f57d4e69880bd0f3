"""The watch over a microcontroller: whether its line is free and its firmware answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from edgekit.devices.serial.labgrid import PlaceTaken
from edgekit.devices.serial.port import Line, LineInUse

if TYPE_CHECKING:
    from edgekit.devices.serial.device import SerialDevice

SECONDS_BETWEEN_LOOKS = 5.0
SECONDS_BETWEEN_QUESTIONS = 30.0
SECONDS_BETWEEN_PLACES = 60.0
"""The interval for labgrid's places: each look acquires the place, which takes seconds."""
_SECONDS_TO_ANSWER = 10.0
"""The time limit for the firmware; long, as a busy host takes seconds, and others wait for it."""


def watch_line(device: SerialDevice, say: Callable[[dict[str, object]], None]) -> None:
    """Report the device's state until it is lost; DeviceError says why."""
    with _holding(device) as hold:
        said, asked = "", -SECONDS_BETWEEN_QUESTIONS
        while True:
            try:
                with hold() as line:
                    if time.monotonic() - asked >= SECONDS_BETWEEN_QUESTIONS or not said:
                        with device.connected(line) as client:
                            client.hello(device.patience(_SECONDS_TO_ANSWER))
                        asked = time.monotonic()
                found = "free"
            except (LineInUse, PlaceTaken):
                found = "in use"
            if not said:
                say({"state": "up"})
            if found != said:
                say({"state": found})
                said = found
            time.sleep(SECONDS_BETWEEN_PLACES if device.labgrid else SECONDS_BETWEEN_LOOKS)


@contextmanager
def _holding(
    device: SerialDevice,
) -> Iterator[Callable[[], AbstractContextManager[Line]]]:
    """Yield a function that takes the line for a moment; a remote line keeps one connection."""
    if device.host is None:
        yield lambda: device.held(looking=True)
        return
    with device.host.connected() as host:
        yield lambda: host.held(device.port, looking=True)
