"""One quantity that a board reports, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quantity = Literal["watts", "joules", "celsius", "megahertz", "throttling", "fan", "bytes"]


@dataclass(frozen=True)
class Sensor:
    """A sensor. Its value is the product of its files' numbers, times `scale`."""

    name: str
    quantity: Quantity
    files: tuple[str, ...]
    scale: float
    is_total: bool = False
    """Whether this power rail supplies the whole board."""
    wraps_at: float | None = None
    """Value at which an energy counter begins again at zero."""
    mask: int = 0b1111
    """Throttling flags of the present. A Raspberry Pi's are undervoltage, capped clock, throttled,
    near its limit; higher bits record the time since the start."""


@dataclass(frozen=True)
class Board:
    """Facts that a board reports and that stay the same during a measurement."""

    model: str | None
    power_mode: str | None
    """Number of a Jetson's power mode, and nvpmodel's name for it."""
    sensors: tuple[Sensor, ...]

    def of(self, quantity: Quantity) -> tuple[Sensor, ...]:
        return tuple(sensor for sensor in self.sensors if sensor.quantity == quantity)
