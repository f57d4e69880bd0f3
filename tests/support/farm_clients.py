"""Other processes that want devices of a farm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDS = """
import sys, time
from edgekit.base.events import Events
from edgekit.devices.lending import lent
events = Events(lambda event: print(event.text, file=sys.stderr, flush=True))
with lent(sys.argv[1], sys.argv[2], wait=240, events=events):
    print("mine", flush=True)
    time.sleep(600)
"""


class Other:
    """A process that waits for a device, and keeps it."""

    def __init__(self, purpose: str, log: Path, *, device: str = "wing", user: str = "") -> None:
        self._log = log
        with log.open("wb") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _HOLDS, device, purpose],
                env={**os.environ, **({"LOGNAME": user} if user else {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )

    def has_it(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "mine\n", self.told()

    def told(self) -> str:
        """What it said while it waited."""
        return self._log.read_text()

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Others:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Other] = []

    def __call__(self, purpose: str, *, device: str = "wing", user: str = "") -> Other:
        log = self._folder / f"{len(self._made)}.log"
        self._made.append(Other(purpose, log, device=device, user=user))
        return self._made[-1]

    def end(self) -> None:
        for other in self._made:
            if other.process.poll() is None:
                other.end()


@contextmanager
def others_in(folder: Path) -> Iterator[Others]:
    """Make other clients, which end with the block."""
    made = Others(folder)
    try:
        yield made
    finally:
        made.end()
