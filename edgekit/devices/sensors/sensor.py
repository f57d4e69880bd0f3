"""One quantity that a board tells, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quantity = Literal["watts", "joules", "celsius", "megahertz", "throttling", "fan", "bytes"]


@dataclass(frozen=True)
class Sensor:
    """Its value is the product of its files' numbers, times `scale`."""

    name: str
    quantity: Quantity
    files: tuple[str, ...]
    scale: float
    is_total: bool = False
    """Of power: the rail through which everything comes."""
    wraps_at: float | None = None
    """Of an energy counter: where it begins again at zero."""
    mask: int = 0b1111
    """Of throttling: the flags that speak of now. A Raspberry Pi's are undervoltage, capped clock,
    throttled, near its limit; higher bits say that it was so at some time since the start."""


@dataclass(frozen=True)
class Board:
    """What a board says of itself that does not change while something is measured."""

    model: str | None
    power_mode: str | None
    """Of a Jetson: its number, and the name that nvpmodel has for it."""
    sensors: tuple[Sensor, ...]

    def of(self, quantity: Quantity) -> tuple[Sensor, ...]:
        return tuple(sensor for sensor in self.sensors if sensor.quantity == quantity)
