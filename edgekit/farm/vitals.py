"""The load and temperature of an idle device."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection

SECONDS_BETWEEN = 30.0
_SECONDS_TO_ANSWER = 20.0
_HOTTEST_BELIEVED, _COLDEST_BELIEVED = 200.0, -60.0
_SCRIPT = (
    "cat /proc/loadavg; for f in /sys/class/thermal/thermal_zone*/temp; do cat $f 2>/dev/null; done"
)


@dataclass(frozen=True)
class Vitals:
    load: float | None
    temperature: float | None


def parse_vitals(output: str) -> Vitals:
    """Parse the script's output; None for a value that is invalid."""
    first, *rest = output.splitlines() or [""]
    load = _number((first.split() or [""])[0])
    degrees = [_number(line) / 1000 for line in rest]
    believed = [value for value in degrees if _COLDEST_BELIEVED < value < _HOTTEST_BELIEVED]
    return Vitals(load if 0 <= load < math.inf else None, max(believed, default=None))


def _number(text: str) -> float:
    """Parse a number; NaN, which fails every comparison, for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@contextmanager
def vitals_reported(
    connection: Connection, report: Callable[[Vitals], None], is_idle: Callable[[], bool]
) -> Iterator[None]:
    """Read the vitals every half minute while the device is idle."""
    over = threading.Event()

    def ask() -> None:
        wait = 1.0
        while not over.wait(wait):
            wait = SECONDS_BETWEEN
            if not is_idle():
                continue
            try:
                done = connection.run(("sh", "-c", _SCRIPT), timeout=_SECONDS_TO_ANSWER)
            except DeviceError:
                return  # the server on the same connection reports why
            report(parse_vitals(done.output))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
