"""Quantities computed from sensor readings over time: watts, joules, degrees, throttling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.devices.sensors.sensor import Board, Sensor
from edgekit.devices.sensors.series import Readings, series
from edgekit.devices.sensors.state import BoardState, state_of

_HOTTEST_BELIEVED, _COLDEST_BELIEVED = 200.0, -60.0
_MOST_WATTS = 10_000.0
_LONGEST_GAP = 2.0
"""Most seconds between two readings across which power is interpolated."""


@dataclass(frozen=True)
class RailUse:
    name: str
    watts: float
    """Mean over the time of the measurement."""


@dataclass(frozen=True)
class PowerUse:
    """Energy of a measurement. `source` names its origin: a rail, the sum of rails, packages."""

    source: str
    watts: float
    idle_watts: float | None
    """Idle power of the same source before the run; None if it was not recorded."""
    joules: float
    """Energy of the whole measurement."""
    seconds: float
    rails: tuple[RailUse, ...]


@dataclass(frozen=True)
class Warmth:
    """Degrees Celsius of the hottest zone."""

    before: float | None
    after: float | None
    hottest: float | None


@dataclass(frozen=True)
class Observed:
    """A board's readings during a measurement; None for quantities it does not report."""

    power: PowerUse | None
    warmth: Warmth | None
    throttled: bool | None
    state: BoardState | None = None


def observe(board: Board, idle: Readings | None, busy: Readings) -> Observed:
    return Observed(
        _power(board, idle, busy),
        _warmth(board, busy),
        _throttled(board, busy),
        state_of(board, busy),
    )


def _power(board: Board, idle: Readings | None, busy: Readings) -> PowerUse | None:
    rails, counters = board.of("watts"), board.of("joules")
    total = [rail for rail in rails if rail.is_total]
    if rails:
        source = total[0].name if total else "sum of " + ", ".join(rail.name for rail in rails)
        return _from_rails(source, total or list(rails), rails, idle, busy)
    if counters:
        source = " and ".join(counter.name for counter in counters)
        return _from_counters(source, counters, idle, busy)
    return None


def _from_rails(
    source: str,
    counted: Sequence[Sensor],
    rails: Sequence[Sensor],
    idle: Readings | None,
    busy: Readings,
) -> PowerUse | None:
    energies = [_integral(rail, busy) for rail in counted]
    if not energies or any(energy is None for energy in energies):
        return None
    joules = sum(energy[0] for energy in energies if energy)
    seconds = min(energy[1] for energy in energies if energy)
    if seconds <= 0:
        return None
    idle_watts: float | None = None
    if idle is not None:
        means = [_mean(rail, idle) for rail in counted]
        if all(mean is not None for mean in means):
            idle_watts = sum(mean for mean in means if mean is not None)
    each = [(rail.name, _mean(rail, busy)) for rail in rails]
    return PowerUse(
        source,
        joules / seconds,
        idle_watts,
        joules,
        seconds,
        tuple(RailUse(name, mean) for name, mean in each if mean is not None),
    )


def _from_counters(
    source: str, counters: Sequence[Sensor], idle: Readings | None, busy: Readings
) -> PowerUse | None:
    spent = [_counted(counter, busy) for counter in counters]
    if any(energy is None for energy in spent):
        return None
    joules = sum(energy[0] for energy in spent if energy)
    seconds = max(energy[1] for energy in spent if energy)
    if seconds <= 0:
        return None
    idle_watts = None
    if idle is not None:
        rested = [_counted(counter, idle) for counter in counters]
        if all(energy and energy[1] > 0 for energy in rested):
            idle_watts = sum(energy[0] / energy[1] for energy in rested if energy)
    rails = tuple(
        RailUse(counter.name, energy[0] / energy[1])
        for counter, energy in zip(counters, spent, strict=True)
        if energy and energy[1] > 0
    )
    return PowerUse(source, joules / seconds, idle_watts, joules, seconds, rails)


def _integral(rail: Sensor, readings: Readings) -> tuple[float, float] | None:
    """Return joules and the seconds they cover: trapezoids between readings that are close
    together."""
    points = series(rail, readings, 0.0, _MOST_WATTS)
    joules = seconds = 0.0
    for (before, low), (after, high) in itertools.pairwise(points):
        step = after - before
        if 0 < step <= _LONGEST_GAP:
            joules += (low + high) / 2 * step
            seconds += step
    return (joules, seconds) if seconds else None


def _mean(rail: Sensor, readings: Readings) -> float | None:
    energy = _integral(rail, readings)
    return energy[0] / energy[1] if energy else None


def _counted(counter: Sensor, readings: Readings) -> tuple[float, float] | None:
    """Return the increase of a counter, which may have wrapped, and the seconds it took."""
    points = series(counter, readings, 0.0, float("inf"))
    if len(points) < 2:
        return None
    joules = 0.0
    for (_, before), (_, after) in itertools.pairwise(points):
        grown = after - before
        if grown < 0:
            if counter.wraps_at is None:
                return None
            grown += counter.wraps_at
        joules += grown
    return joules, points[-1][0] - points[0][0]


def _warmth(board: Board, readings: Readings) -> Warmth | None:
    zones = [
        series(zone, readings, _COLDEST_BELIEVED, _HOTTEST_BELIEVED) for zone in board.of("celsius")
    ]
    believed = [points for points in zones if points]
    if not believed:
        return None
    return Warmth(
        before=max(points[0][1] for points in believed),
        after=max(points[-1][1] for points in believed),
        hottest=max(value for points in believed for _, value in points),
    )


def _throttled(board: Board, readings: Readings) -> bool | None:
    flags = [
        value & sensor.mask
        for sensor in board.of("throttling")
        for value in readings.values.get(sensor.files[0], ())
        if value is not None
    ]
    return any(flags) if flags else None
