"""Reads sensors of this machine in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgekit.devices.sensors import nvml
from edgekit.devices.sensors.series import Readings, parse_reading
from edgekit.devices.sensors.snapshot import read_value

SECONDS_BETWEEN = 0.05
IDLE_SECONDS = 1.0
_MOST_READINGS = 100_000


class Watch:
    """Reads until `end` is called, which returns all readings."""

    def __init__(
        self, files: Sequence[str], root: Path = Path("/"), gpus: nvml.Gpus | None = None
    ) -> None:
        self._files = tuple(files)
        self._root = root
        self._gpus = gpus
        self._times: list[float] = []
        self._columns: list[list[int | None]] = [[] for _ in files]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> Readings:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        return Readings(
            tuple(self._times),
            {file: tuple(column) for file, column in zip(self._files, self._columns, strict=True)},
        )

    def _work(self) -> None:
        while True:
            self._read()
            if self._over.wait(SECONDS_BETWEEN) or len(self._times) >= _MOST_READINGS:
                self._read()
                return

    def _read(self) -> None:
        self._times.append(time.monotonic())
        for file, column in zip(self._files, self._columns, strict=True):
            column.append(self._value(file))

    def _value(self, file: str) -> int | None:
        if file.startswith(nvml.ROOT):
            return nvml.read_path(self._gpus, file)
        return parse_reading(file, read_value(file, self._root))


@contextmanager
def watching(
    files: Sequence[str], root: Path = Path("/"), gpus: nvml.Gpus | None = None
) -> Iterator[Watch]:
    """Read in the background until the block ends."""
    watch = Watch(files, root, gpus)
    watch.begin()
    try:
        yield watch
    finally:
        watch.end()


def watched_for(
    seconds: float, files: Sequence[str], root: Path = Path("/"), gpus: nvml.Gpus | None = None
) -> Readings:
    with watching(files, root, gpus) as watch:
        time.sleep(seconds)
    return watch.end()
