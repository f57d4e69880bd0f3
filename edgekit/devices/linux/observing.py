"""What a board's sensors say while a model is measured on it: this machine's, or those far away."""

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
        """From here on the model is measured."""

    def end(self) -> Observed | None:
        """What there was to see until now, and no more; None where the board has no sensors or
        nobody asked."""


class Blind:
    """Sees nothing."""

    def begin(self) -> None:
        return

    def end(self) -> None:
        return


@contextmanager
def observing_here(wanted: bool) -> Iterator[Observer]:
    """Of this machine. Where it can tell its power, it is left idle for a second first."""
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
            yield _Here(board, idle, watch)
    finally:
        if gpus is not None:
            gpus.close()


@contextmanager
def observing_there(connection: Connection, program: str, wanted: bool) -> Iterator[Observer]:
    """Of a board over SSH, by its agent, which reads and nothing else: what the files mean is
    known here."""
    board = _board_there(connection) if wanted else None
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
        yield _There(board, idle, listening)


class _Here:
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


class _There:
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
    """From the first measured inference on; with the warming up before it where the measurement was
    so short, or told of so late, that there is next to nothing."""
    if len(readings.times) - first < _FEWEST_READINGS:
        return readings
    values = {file: column[first:] for file, column in readings.values.items()}
    return Readings(readings.times[first:], values)


class _Listening:
    """The agent's lines, as they come. The block begins with the first: to start a program takes a
    slow board, or a busy one, longer than a look at what it uses while it is idle."""

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
            with suppress(DeviceError):  # whoever measures over the same connection says why
                while not self._over and (line := command.next_line(_SILENCE)) is not None:
                    with self._lock:
                        if len(self._lines) < _MOST_READINGS:
                            self._lines.append(line)
                    self._begun.set()
        finally:
            self._begun.set()


def parse_readings(lines: list[str], files: tuple[str, ...]) -> Readings:
    """What the agent's `watch` wrote; lines that make no sense are left out."""
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


def _board_there(connection: Connection) -> Board | None:
    """None where a sensor hangs: it keeps nobody from measuring. A connection that is lost says so
    to whoever uses it next."""
    try:
        done = connection.run(("sh", "-c", SCRIPT), timeout=_SECONDS_TO_ANSWER)
    except DeviceError:
        return None
    return discover(parse_snapshot(done.output))


def _files(board: Board) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file for sensor in board.sensors for file in sensor.files))


def _has_power(board: Board) -> bool:
    return bool(board.of("watts") or board.of("joules"))
