"""Sensor readings over time, as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.devices.sensors.sensor import Sensor
from edgekit.devices.sensors.snapshot import NVMAP_CLIENTS, THROTTLED

_LONGEST_NUMBER = 32
"""Longest number in characters. A kernel's numbers have 64 bits."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Readings:
    """Readings of files: `values[path][i]` was read at `times[i]`, None if a sensor refused."""

    times: tuple[float, ...]
    """Seconds on the board's own clock."""
    values: Mapping[str, tuple[int | None, ...]]


def series(
    sensor: Sensor, readings: Readings, lowest: float, highest: float
) -> list[tuple[float, float]]:
    """Return times and values, without refused and impossible ones."""
    columns = [readings.values.get(file) for file in sensor.files]
    points = []
    for place, moment in enumerate(readings.times):
        value: float | None = sensor.scale
        for column in columns:
            number = column[place] if column is not None and place < len(column) else None
            value = None if number is None or value is None else value * number
        if value is not None and lowest <= value <= highest:
            points.append((moment, value))
    return points


def parse_reading(path: str, text: str) -> int | None:
    """Return a whole number as that file writes it; None for anything else."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if path == NVMAP_CLIENTS:
        return _total(text)
    try:
        return int(text.strip(), 16 if path == THROTTLED else 10)
    except ValueError:
        return None


def _total(text: str) -> int | None:
    """Return the bytes of a line such as `total 27756K`."""
    match = re.fullmatch(r"total\s+(\d{1,12})([KMG]?)", text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None
