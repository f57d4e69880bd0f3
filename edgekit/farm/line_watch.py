"""A microcontroller of the farm: whether its line is free, and whether its firmware answers.

No client of TVM can be given one, so nobody asks the farm for it: whoever uses it holds its line,
and that is what is looked at.
"""

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
"""Where each look acquires a place of labgrid's, which takes seconds and keeps others away."""
_SECONDS_TO_ANSWER = 10.0
"""Long: who wants the line meanwhile waits for the look's end, and a busy machine takes seconds."""


def watch_line(device: SerialDevice, say: Callable[[dict[str, object]], None]) -> None:
    """Until the device is lost, which is an error: DeviceError says why."""
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
    """How to take the line for a moment; through one connection where another machine has it."""
    if device.host is None:
        yield lambda: device.held(looking=True)
        return
    with device.host.connected() as host:
        yield lambda: host.held(device.port, looking=True)
