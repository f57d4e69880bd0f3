"""Sensor readings while a model is measured, of this machine or of a board."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from edgekit.base.errors import DeviceError
from edgekit.devices.linux.remote_command import guarded
from edgekit.devices.sensors import nvml
from edgekit.devices.sensors.discovery import discover
from edgekit.devices.sensors.readings import Observed, observe
from edgekit.devices.sensors.sensor import Board
from edgekit.devices.sensors.series import Readings, parse_reading
from edgekit.devices.sensors.snapshot import SCRIPT, local_snapshot, parse_snapshot
from edgekit.devices.sensors.watching import (
    IDLE_SECONDS,
    SECONDS_BETWEEN,
    Watch,
    watched_for,
    watching,
)

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

_SECONDS_TO_ANSWER = 20.0
_SILENCE = 30.0
_MOST_READINGS = 100_000
_FEWEST_READINGS = 5


class Observer(Protocol):
    def begin(self) -> None:
        """Mark the start of the measurement."""

    def end(self) -> Observed | None:
        """Return the readings until now and stop; None if the board has no sensors or they were not
        requested."""


class Blind:
    """An observer without sensors."""

    def begin(self) -> None:
        return

    def end(self) -> None:
        return


@contextmanager
def observe_this_machine(wanted: bool) -> Iterator[Observer]:
    """Observe this machine. If it reports its power, first leave it idle for a second."""
    gpus = nvml.open_gpus() if wanted else None
    try:
        snapshot = local_snapshot() if wanted else {}
        if gpus is not None:
            snapshot |= nvml.snapshot_of(gpus)
        board = discover(snapshot)
        if not board.sensors:
            yield Blind()
            return
        files = _files(board)
        idle = watched_for(IDLE_SECONDS, files, gpus=gpus) if _has_power(board) else None
        with watching(files, gpus=gpus) as watch:
            yield _LocalObserver(board, idle, watch)
    finally:
        if gpus is not None:
            gpus.close()


@contextmanager
def observe_board(connection: Connection, program: str, wanted: bool) -> Iterator[Observer]:
    """Observe a board over SSH. Its agent only reads the files; the host interprets them."""
    board = _board_of(connection) if wanted else None
    if board is None or not board.sensors:
        yield Blind()
        return
    files = _files(board)
    words = (program, "watch", "--interval", f"{SECONDS_BETWEEN:g}", *files)
    idle: Readings | None = None
    if _has_power(board):
        with _Listening(connection, words, files) as listening:
            time.sleep(IDLE_SECONDS)
            idle = listening.readings()
    with _Listening(connection, words, files) as listening:
        yield _BoardObserver(board, idle, listening)


class _LocalObserver:
    def __init__(self, board: Board, idle: Readings | None, watch: Watch) -> None:
        self._board = board
        self._idle = idle
        self._watch = watch
        self._begun_at: float | None = None

    def begin(self) -> None:
        if self._begun_at is None:
            self._begun_at = time.monotonic()

    def end(self) -> Observed | None:
        readings = self._watch.end()
        first = bisect_left(readings.times, self._begun_at or 0.0)
        return observe(self._board, self._idle, _measured(readings, first))


class _BoardObserver:
    def __init__(self, board: Board, idle: Readings | None, listening: _Listening) -> None:
        self._board = board
        self._idle = idle
        self._listening = listening
        self._first: int | None = None
        self._observed: Observed | None = None

    def begin(self) -> None:
        if self._first is None:
            self._first = len(self._listening.readings().times)

    def end(self) -> Observed | None:
        if self._observed is None:
            readings = _measured(self._listening.readings(), self._first or 0)
            self._observed = observe(self._board, self._idle, readings)
        return self._observed


def _measured(readings: Readings, first: int) -> Readings:
    """Return the readings from the first measured inference on. Keep the warming up before it if
    too few remain because the measurement was short or the mark came late."""
    if len(readings.times) - first < _FEWEST_READINGS:
        return readings
    values = {file: column[first:] for file, column in readings.values.items()}
    return Readings(readings.times[first:], values)


class _Listening:
    """The agent's lines, as they come.

    Entering waits for the first line: on a slow or busy board, starting a program takes longer than
    observing the idle board.
    """

    def __init__(
        self, connection: Connection, words: tuple[str, ...], files: tuple[str, ...]
    ) -> None:
        self._command = connection.command(guarded(words), listens=True)
        self._files = files
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._begun = threading.Event()
        self._over = False

    def __enter__(self) -> _Listening:
        command = self._command.__enter__()
        threading.Thread(target=self._listen, args=(command,), daemon=True).start()
        self._begun.wait(_SECONDS_TO_ANSWER)
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self._command.__exit__(None, None, None)

    def readings(self) -> Readings:
        with self._lock:
            lines = list(self._lines)
        return parse_readings(lines, self._files)

    def _listen(self, command: RemoteCommand) -> None:
        try:
            with suppress(DeviceError):  # the measurement on the same connection reports the reason
                while not self._over and (line := command.next_line(_SILENCE)) is not None:
                    with self._lock:
                        if len(self._lines) < _MOST_READINGS:
                            self._lines.append(line)
                    self._begun.set()
        finally:
            self._begun.set()


def parse_readings(lines: list[str], files: tuple[str, ...]) -> Readings:
    """Read the lines that the agent's `watch` wrote; invalid lines are skipped."""
    times: list[float] = []
    columns: list[list[int | None]] = [[] for _ in files]
    for line in lines:
        moment, *values = line.split("\t")
        if not moment.isdecimal() or len(moment) > 19 or len(values) != len(files):
            continue
        times.append(int(moment) / 1e9)
        for column, file, value in zip(columns, files, values, strict=True):
            column.append(parse_reading(file, value))
    return Readings(
        tuple(times),
        {file: tuple(column) for file, column in zip(files, columns, strict=True)},
    )


def _board_of(connection: Connection) -> Board | None:
    """Return the board's sensors; None if one hangs, which must not stop a measurement. The next
    user of a lost connection gets its error."""
    try:
        done = connection.run(("sh", "-c", SCRIPT), timeout=_SECONDS_TO_ANSWER)
    except DeviceError:
        return None
    return discover(parse_snapshot(done.output))


def _files(board: Board) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file for sensor in board.sensors for file in sensor.files))


def _has_power(board: Board) -> bool:
    return bool(board.of("watts") or board.of("joules"))
