"""The process that serves one device of the farm until it is lost, and reports in lines of JSON.

The keeper starts one for each device, and another when it ends. It dies with its keeper.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT
from edgekit.base.parent_process import end_with_parent
from edgekit.devices.base import DeviceBusy
from edgekit.devices.lending import NO_LENDER
from edgekit.devices.registry import find_device, known_devices
from edgekit.farm.vitals import Vitals, vitals_reported
from edgekit.rpc.protocol import LOOPBACK, TrackerAddress
from edgekit.rpc.server import ServePlan, ServingEvent, serve_until_lost

if TYPE_CHECKING:
    from edgekit.devices.device import Device, HasLine
    from edgekit.devices.linux.connection import Connection


Say = Callable[[dict[str, object]], None]

SECONDS_BETWEEN_SIGNS = 5.0


def main() -> None:
    name, project, key, tracker_port, port = sys.argv[1:]
    with reported() as say:
        threading.Thread(target=_wait_for_keepers_end, daemon=True).start()
        device = device_named(name, project).lent_by(NO_LENDER)
        if not key:  # TVM's tracker cannot hand it out
            watch_line(device.line(), say)
            return
        plan = ServePlan(
            device.agent(), key, TrackerAddress(LOOPBACK, int(tracker_port)), int(port)
        )
        _serve(plan, say)


@contextmanager
def reported() -> Iterator[Say]:
    """Yield a function that reports to the keeper. Report errors of the block, and signs of life
    during it: the keeper kills a worker that hangs."""
    end_with_parent()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()
    over = threading.Event()

    def say(document: dict[str, object]) -> None:
        with lock:
            channel.write(json.dumps(document) + "\n")

    def report_life() -> None:
        while not over.wait(SECONDS_BETWEEN_SIGNS):
            say({"state": "alive"})

    threading.Thread(target=report_life, daemon=True).start()
    try:
        yield say
    except EdgekitError as error:
        say({"state": "lost", "reason": error.message})
    except Exception as error:  # noqa: BLE001 - the keeper shows it
        say({"state": "lost", "reason": f"a bug in edgekit: {type(error).__name__}: {error}"})
    finally:
        over.set()


def _serve(plan: ServePlan, say: Say) -> None:
    idle = threading.Event()

    def report(event: ServingEvent) -> None:
        if event.state in ("up", "free"):
            idle.set()
        elif event.state != "refused":
            idle.clear()
        say(asdict(event))

    def during(connection: Connection) -> AbstractContextManager[None]:
        def report_vitals(vitals: Vitals) -> None:
            say({"state": "vitals", **asdict(vitals)})

        return vitals_reported(connection, report_vitals, idle.is_set)

    serve_until_lost(plan, report, during, SILENT)


def device_named(name: str, project: str) -> Device:
    """Return a device of this host, of the user or of the project file."""
    from pathlib import Path

    from edgekit.devices.choice import device_for
    from edgekit.project.file import read_project

    found = read_project(Path(project)) if project else None
    known = find_device(name, known_devices(found))
    board = known.board(found.folder if found else None)
    return device_for(board, name, {name: known.entry})


def _wait_for_keepers_end() -> None:
    """End when the keeper closes the input of this process."""
    while os.read(0, 4096):
        pass
    end_with_keeper()


def end_with_keeper() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


SECONDS_BETWEEN_QUESTIONS = 30.0
_SECONDS_TO_ANSWER = 10.0
"""The time limit for the firmware; long, as a busy host takes seconds, and others wait for it."""


def watch_line(device: HasLine, say: Callable[[dict[str, object]], None]) -> None:
    """Report the device's state until it is lost; DeviceError says why."""
    with device.looking() as hold:
        measured_by = device.measured_by
        said, asked = "", -SECONDS_BETWEEN_QUESTIONS
        while True:
            try:
                with hold() as line:
                    is_due = time.monotonic() - asked >= SECONDS_BETWEEN_QUESTIONS or not said
                    if is_due and not line.is_blank():  # a blank one waits for its firmware
                        measured_by = device.check_answer(line, _SECONDS_TO_ANSWER)
                        asked = time.monotonic()
                found = "free"
            except DeviceBusy:
                found = "in use"
            if not said:
                say({"state": "up", "is_emulated": measured_by == "emulator"})
            if found != said:
                say({"state": found})
                said = found
            time.sleep(device.seconds_between_looks)


if __name__ == "__main__":
    main()
