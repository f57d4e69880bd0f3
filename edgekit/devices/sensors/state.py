"""A board's state during a measurement: power mode, clocks, fans, the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.devices.sensors.sensor import Board, Quantity
from edgekit.devices.sensors.series import Readings, series

_HIGHEST_CLOCK = 20_000.0
_MOST_BYTES = float(1 << 44)
_FASTEST_FAN = 100_000.0


@dataclass(frozen=True)
class Level:
    """A clock in megahertz, or a fan in its driver's unit: revolutions a minute, or PWM steps."""

    name: str
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class BoardState:
    """A board's state; None or an empty list for what it does not report."""

    power_mode: str | None
    clocks: tuple[Level, ...]
    fans: tuple[Level, ...]
    gpu_memory: int | None
    """Peak of the bytes in use on the GPUs, by all processes."""


def state_of(board: Board, readings: Readings) -> BoardState | None:
    memory = _levels(board, "bytes", readings, _MOST_BYTES)
    state = BoardState(
        board.power_mode,
        _levels(board, "megahertz", readings, _HIGHEST_CLOCK),
        _levels(board, "fan", readings, _FASTEST_FAN),
        round(sum(level.highest for level in memory)) if memory else None,
    )
    return None if state == BoardState(None, (), (), None) else state


def _levels(board: Board, quantity: Quantity, readings: Readings, most: float) -> tuple[Level, ...]:
    levels = []
    for sensor in board.of(quantity):
        values = [value for _, value in series(sensor, readings, 0.0, most)]
        if values:
            mean = sum(values) / len(values)
            levels.append(Level(sensor.name, mean, min(values), max(values)))
    return tuple(levels)
