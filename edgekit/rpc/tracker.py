"""The tracker of this host: one for each user, supervised, on loopback only.

The supervisor holds a lock and the listening socket. The tracker is a child process: when it dies,
another takes over the socket, and devices register again by themselves.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.base.children import WITH_OUTPUT, Process, TimeoutExpired, start_module
from edgekit.base.decode import decode_json
from edgekit.base.errors import DeviceError, MissingToolError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, try_lock, write_atomically
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.own_listener import port_error
from edgekit.base.paths import data_dir
from edgekit.rpc.protocol import DEFAULT_PORT, LOOPBACK, TrackerAddress, TrackerGone
from edgekit.rpc.tracker_worker import READY

_SECONDS_TO_START = 120.0
_SECONDS_TO_STOP = 10.0
_SECONDS_BETWEEN_STARTS = 1.0
_SECONDS_TO_LOCK = 60.0
"""The time limit for the lock, which an interrupted search for a tracker may hold for long."""
_SECONDS_BETWEEN_LOOKS = 0.2
_LINES_SHOWN = 12
_LONGEST_LINE = 1000


@dataclass(frozen=True)
class RunningTracker:
    host: str
    port: int
    pid: int
    """The process ID of the supervisor."""

    @property
    def address(self) -> TrackerAddress:
        return TrackerAddress(self.host, self.port)


def running_tracker() -> RunningTracker | None:
    """Find the tracker that this user runs on this host."""
    with storage_errors("look for a tracker", _folder()):
        if not _lock_file().exists():
            return None
        lock = try_lock(_lock_file())
        if lock is not None:
            os.close(lock)
            return None  # the lock ended with its holder, and the file is old
        try:
            return decode_json(RunningTracker, _state_file().read_bytes(), ignore_unknown=True)
        except (FileNotFoundError, ValueError):
            return None  # it is starting or ending


def find_tracker(address: TrackerAddress | None = None) -> TrackerAddress:
    """Return the given address, or that of this host's tracker; TrackerGone if none runs."""
    if address is not None:
        return address
    running = running_tracker()
    if running is None:
        raise TrackerGone(
            "no tracker is running on this host", hint="start one with `edgekit rpc tracker`"
        )
    return running.address


def run_tracker(
    port: int = DEFAULT_PORT,
    *,
    started: Callable[[RunningTracker], None],
    events: Events = SILENT,
    stop: threading.Event | None = None,
) -> None:
    """Run a tracker until interrupted or `stop` is set. Call `started` once it serves."""
    over = stop or threading.Event()
    _check_tornado()
    with _only_one(), _listening(port) as listener, _state(listener) as state:
        with events.stage("start the tracker"):
            child = _start(listener, events.warn)
        try:
            started(state)
            while not over.is_set():
                with suppress(TimeoutExpired):
                    child.wait(timeout=None if stop is None else _SECONDS_BETWEEN_LOOKS)
                if child.returncode is None:
                    continue
                events.warn(f"the tracker ended ({_ending(child)}) and is started again")
                time.sleep(_SECONDS_BETWEEN_STARTS)
                child = _start(listener, events.warn)
        finally:
            _end(child)


@contextmanager
def private_tracker(
    refused: Callable[[str], None] = lambda reason: None,
) -> Iterator[TrackerAddress]:
    """Run an unannounced tracker on a free port during the block. `refused` is told of other users'
    connections."""
    _check_tornado()
    with socket.create_server((LOOPBACK, 0), backlog=64) as listener:
        child = _start(listener, refused)
        try:
            yield TrackerAddress(LOOPBACK, int(listener.getsockname()[1]))
        finally:
            _end(child)


def stop_tracker() -> RunningTracker | None:
    """End this host's tracker and wait for that; None if none runs."""
    running = running_tracker()
    if running is None:
        return None
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS_TO_STOP
    while running_tracker() == running:
        if time.monotonic() > deadline:
            raise DeviceError(
                f"the tracker (process {running.pid}) does not end",
                hint=f"kill -9 {running.pid} ends it, and what belongs to it",
            )
        time.sleep(0.05)
    return running


def _check_tornado() -> None:
    if importlib.util.find_spec("tornado") is None:
        raise MissingToolError(
            "TVM's tracker needs tornado, which is not installed", hint="pip install tornado"
        )


@contextmanager
def _only_one() -> Iterator[None]:
    with storage_errors("remember the tracker", _folder()):
        _folder().mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _SECONDS_TO_LOCK
        while (lock := try_lock(_lock_file())) is None:
            # Held by a tracker, or for a moment by a process that looks for one.
            if _state_file().exists() and (running := running_tracker()) is not None:
                raise UsageError(
                    f"a tracker is running already, at {running.address}",
                    hint="use it, or end it first: edgekit rpc stop",
                )
            if time.monotonic() > deadline:
                raise UsageError(
                    "a tracker is being started or stopped on this host",
                    hint="try again in a moment; `edgekit rpc status` shows it",
                )
            time.sleep(0.05)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    try:
        listener = socket.create_server((LOOPBACK, port), backlog=1024)
    except OSError as error:
        raise port_error(port, error) from error
    with closing(listener):
        yield listener


@contextmanager
def _state(listener: socket.socket) -> Iterator[RunningTracker]:
    state = RunningTracker(LOOPBACK, listener.getsockname()[1], os.getpid())
    with storage_errors("remember the tracker", _state_file()):
        write_atomically(_state_file(), json.dumps(asdict(state)))
    try:
        yield state
    finally:
        _state_file().unlink(missing_ok=True)


def _start(listener: socket.socket, refused: Callable[[str], None]) -> Process:
    """Start a child that serves on the socket; pass the lines it writes on to `refused`."""
    descriptor = listener.fileno()
    with interrupts_deferred():
        child = start_module(
            ["edgekit.rpc.tracker_worker", str(descriptor)],
            stderr=WITH_OUTPUT,
            pass_fds=(descriptor,),
        )
    try:
        _wait_until_ready(child)
    except BaseException:
        _end(child)
        assert child.stdout is not None
        child.stdout.close()
        raise
    threading.Thread(target=_pass_on, args=(child, refused), daemon=True).start()
    return child


def _pass_on(child: Process, refused: Callable[[str], None]) -> None:
    assert child.stdout is not None
    with child.stdout as lines:
        while line := lines.readline(_LONGEST_LINE):
            refused(line.decode(errors="replace").strip())


def _wait_until_ready(child: Process) -> None:
    assert child.stdout is not None
    lines: deque[str] = deque(maxlen=_LINES_SHOWN)
    deadline = time.monotonic() + _SECONDS_TO_START
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(deadline - time.monotonic(), 0)):
            line = child.stdout.readline()
            if line == READY:
                return
            if not line:
                raise MissingToolError(
                    f"TVM's tracker does not start: {lines[-1] if lines else 'it wrote nothing'}",
                    hint="run edgekit doctor to see what this host lacks",
                    details=tuple(lines)[:-1],
                )
            lines.append(line.decode(errors="replace").rstrip()[:500])
    raise DeviceError(
        f"TVM's tracker did not start within {_SECONDS_TO_START:g} s",
        hint="check whether this host is overloaded",
    )


def _end(child: Process) -> None:
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()


def _ending(child: Process) -> str:
    code = child.returncode
    return signal.strsignal(-code) or f"signal {-code}" if code < 0 else f"exit code {code}"


def _folder() -> Path:
    return data_dir() / "rpc"


def _state_file() -> Path:
    return _folder() / "tracker.json"


def _lock_file() -> Path:
    return _folder() / "tracker.lock"
