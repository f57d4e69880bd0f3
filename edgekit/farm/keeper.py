"""The process that keeps the farm: a tracker, a worker for each device, and what it knows of them.

One thread hears everybody: workers on their pipes, commands on a socket, and the clock. What a
device's state becomes is decided in `health.py`.
"""

from __future__ import annotations

import getpass
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.errors import DeviceError, EdgekitError, UsageError
from edgekit.events import SILENT, Events
from edgekit.farm import health
from edgekit.farm.control import LONGEST_LINE, bound, farm_folder, lock_path, refused, socket_path
from edgekit.farm.health import Health, Limits
from edgekit.farm.status import DeviceStatus, FarmStatus, Lease
from edgekit.farm.worker_process import WorkerProcess
from edgekit.files import storage_errors, try_lock
from edgekit.rpc.protocol import DEFAULT_PORT, TrackerAddress
from edgekit.rpc.tracker import RunningTracker, run_tracker, running_tracker
from edgekit.wording import did_you_mean

_TICK = 0.25
_HIGHEST_PRIORITY = 1000
_LONGEST_NAME = 100
_SECONDS_FOR_TRACKER = 130.0


@dataclass(frozen=True)
class Member:
    name: str
    board: str
    key: str
    """Empty where TVM's tracker can't hand it out."""


@dataclass(frozen=True)
class FarmPlan:
    members: tuple[Member, ...]
    project: Path | None = None
    """The file that knows the devices, beside the user's own."""
    port: int = DEFAULT_PORT
    """Of the tracker, where none runs yet."""
    limits: Limits = field(default_factory=Limits)


def run_farm(
    plan: FarmPlan, *, started: Callable[[FarmStatus], None], events: Events = SILENT
) -> None:
    """Keep the farm until interrupted, or until `edgekit farm down`. Leaves nothing running."""
    with _only_one(), _tracker(plan.port, events) as tracker, ExitStack() as closing:
        keeper = _Keeper(plan, tracker, events)
        closing.callback(keeper.close)
        started(keeper.status())
        keeper.run()


@contextmanager
def _only_one() -> Iterator[None]:
    folder = farm_folder()
    with storage_errors("keep a farm", folder):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        lock = try_lock(lock_path())
    if lock is None:
        raise UsageError(
            "a farm is up already",
            hint="`edgekit farm status` shows it, `edgekit farm down` ends it",
        )
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _tracker(port: int, events: Events) -> Iterator[TrackerAddress]:
    """The one that runs on this machine, or one of our own for as long as we run."""
    running = running_tracker()
    if running is not None:
        events.note(f"the tracker at {running.address} runs already, and is used")
        yield running.address
        return
    stop, ready = threading.Event(), threading.Event()
    found: list[RunningTracker] = []
    failed: list[EdgekitError] = []

    def started(tracker: RunningTracker) -> None:
        found.append(tracker)
        ready.set()

    def work() -> None:
        try:
            run_tracker(port, started=started, events=events, stop=stop)
        except EdgekitError as error:
            failed.append(error)
            if ready.is_set():
                events.warn(f"the tracker is gone: {error.message}")
            ready.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        ready.wait(_SECONDS_FOR_TRACKER)
        if failed:
            raise failed[0]
        if not found:
            raise DeviceError(
                f"the tracker did not start within {_SECONDS_FOR_TRACKER:g} s",
                hint="edgekit rpc tracker shows why",
            )
        yield found[0].address
    finally:
        stop.set()
        thread.join(timeout=15)


@dataclass
class _Device:
    member: Member
    health: Health
    worker: WorkerProcess | None = None
    port: int = 0
    lease: Lease | None = None
    load: float | None = None
    temperature: float | None = None


class _Keeper:
    def __init__(self, plan: FarmPlan, tracker: TrackerAddress, events: Events) -> None:
        now = time.time()
        self._plan = plan
        self._tracker = tracker
        self._events = events
        self._started = now
        self._devices = {m.name: _Device(m, Health(since=now)) for m in plan.members}
        self._selector = selectors.DefaultSelector()
        self._listener = bound()
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._over = False

    def run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(_TICK):
                key.data()
            self._time_passed()

    def close(self) -> None:
        for device in self._devices.values():
            if device.worker is not None:
                device.worker.tell_to_end()  # all of them, before one is waited for
        for device in self._devices.values():
            self._end(device)
        self._selector.close()
        self._listener.close()
        socket_path().unlink(missing_ok=True)

    def status(self) -> FarmStatus:
        now = time.time()
        return FarmStatus(
            pid=os.getpid(),
            started=self._started,
            now=now,
            tracker=str(self._tracker),
            devices=tuple(self._told(device, now) for device in self._devices.values()),
        )

    def _told(self, device: _Device, now: float) -> DeviceStatus:
        state = device.health
        lease = device.lease if state.state in ("busy", "draining") else None
        return DeviceStatus(
            name=device.member.name,
            board=device.member.board,
            key=device.member.key,
            state=state.state,
            since=state.since,
            reason=state.reason,
            again_at=state.again_at,
            port=device.port if state.state in ("free", "busy", "draining") else 0,
            sessions=state.sessions,
            faults=len(state.faults),
            lease=lease,
            load=device.load,
            temperature=device.temperature,
        )

    def _time_passed(self) -> None:
        now = time.time()
        for device in self._devices.values():
            device.health = health.time_passed(device.health, now, self._plan.limits)
            if device.health.wants_worker and device.worker is None:
                self._start(device)
            elif device.health.state in ("drained", "quarantined") and device.worker is not None:
                self._end(device)

    def _start(self, device: _Device) -> None:
        member = device.member
        worker = WorkerProcess.started(
            member.name, self._plan.project, member.key, self._tracker.port, device.port
        )
        device.worker = worker
        self._selector.register(
            worker.output, selectors.EVENT_READ, lambda: self._hear(device, worker)
        )

    def _end(self, device: _Device) -> None:
        worker, device.worker = device.worker, None
        if worker is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(worker.output)
            worker.end()
        device.lease = None

    def _hear(self, device: _Device, worker: WorkerProcess) -> None:
        if device.worker is not worker:
            return  # ended by what was heard just before it
        messages, is_over = worker.heard()
        for message in messages:
            self._take(device, message)
        if is_over:
            reason = worker.last_reason or worker.ending()
            self._end(device)
            before = device.health.state
            device.health = health.was_lost(device.health, reason, time.time(), self._plan.limits)
            if device.health.state != before:
                self._events.warn(f"{device.member.name} is {device.health.state}: {reason}")

    def _take(self, device: _Device, message: Mapping[str, Any]) -> None:
        now, state = time.time(), message.get("state")
        if state == "up":
            device.port = int(message.get("port", 0))
            device.health = health.came_up(device.health, now)
            self._events.note(f"{device.member.name} is up")
        elif state == "in use":
            device.health = health.was_taken(device.health, now)
        elif state == "free":
            device.lease = None
            device.health = health.was_given_back(device.health, now)
        elif state == "vitals":
            device.load = message.get("load")
            device.temperature = message.get("temperature")

    def _accept(self) -> None:
        with suppress(OSError):
            stream, _ = self._listener.accept()
            stream.setblocking(False)
            heard = bytearray()
            self._selector.register(
                stream, selectors.EVENT_READ, lambda: self._hear_client(stream, heard)
            )

    def _hear_client(self, stream: socket.socket, heard: bytearray) -> None:
        try:
            block = stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        heard += block
        if b"\n" not in heard and block and len(heard) < LONGEST_LINE:
            return
        self._selector.unregister(stream)
        with stream:
            if b"\n" in heard:
                answer = json.dumps(self._answer(bytes(heard.split(b"\n")[0]))).encode() + b"\n"
                stream.settimeout(5)
                with suppress(OSError):
                    stream.sendall(answer)

    def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError("no object")
            return self._done(request)
        except EdgekitError as error:
            return refused(error)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return {"error": "the farm does not understand that", "hint": ""}

    def _done(self, request: Mapping[str, Any]) -> dict[str, object]:
        now, what = time.time(), request["do"]
        if what == "drain":
            device = self._named(request["device"])
            device.health = health.drained(device.health, now)
            self._time_passed()
        elif what == "resume":
            device = self._named(request["device"])
            device.health = health.resumed(device.health, now)
        elif what == "lease":
            self._lease(request, now)
        elif what == "priority":
            return {"priority": _HIGHEST_PRIORITY - self._held_by(str(request["owner"]), now)}
        elif what == "down":
            self._over = True
        elif what != "status":
            raise KeyError(what)
        return asdict(self.status())

    def _named(self, name: object) -> _Device:
        device = self._devices.get(str(name))
        if device is None:
            raise UsageError(
                f"the farm has no device {str(name)[:_LONGEST_NAME]!r}",
                hint=did_you_mean(str(name), self._devices, "`edgekit farm status` shows them"),
            )
        return device

    def _lease(self, request: Mapping[str, Any], now: float) -> None:
        port = int(request["port"])
        for device in self._devices.values():
            if port and device.port == port:
                device.lease = Lease(
                    str(request["owner"])[:_LONGEST_NAME],
                    str(request["purpose"])[:_LONGEST_NAME],
                    now + float(request["seconds"]),
                )

    def _held_by(self, owner: str, now: float) -> int:
        return sum(
            device.lease is not None and device.lease.owner == owner and device.lease.until > now
            for device in self._devices.values()
        )


def this_user() -> str:
    """How leases name whoever asks."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}:{os.getpid()}"
