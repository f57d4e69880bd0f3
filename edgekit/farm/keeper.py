"""The keeper of a farm: it runs a worker for each device and each joined host.

One thread serves workers' pipes, clients' requests and the clock. `health.py` decides what the
state of a device becomes.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from edgekit.base.decode import encode
from edgekit.base.errors import EdgekitError, StorageError
from edgekit.base.events import Events
from edgekit.base.own_listener import Door
from edgekit.devices.keeper_client import socket_path
from edgekit.devices.keeper_messages import (
    DeviceStatus,
    FarmStatus,
    Lease,
    Request,
    Reservation,
    no_such_device,
)
from edgekit.farm import health
from edgekit.farm.clients import Client
from edgekit.farm.control import listen
from edgekit.farm.health import Health
from edgekit.farm.hosts.file import known_hosts_of_farm
from edgekit.farm.hosts.joined import JoinedHost
from edgekit.farm.loans import Loans, read_reservations, write_reservations
from edgekit.farm.own_device import OwnDevice
from edgekit.farm.plan import FarmPlan
from edgekit.farm.worker_process import WorkerProcess
from edgekit.rpc.protocol import TrackerAddress

_TICK = 0.25
_SECONDS_BETWEEN_CHANGES = 0.05
_SECONDS_STATUS_LASTS = 0.05
_HIGHEST_PRIORITY = 1000
_OF_A_DEVICE = ("entry", "drain", "resume", "take", "reserve", "release")
"""The requests about one device, which its own farm answers."""
_LONGEST_EVENT = 400
_MOST_LEASES = 50
"""The most leases recorded for one device before their sessions begin."""


_Served = OwnDevice | JoinedHost
"""What has a worker process of its own."""


class Keeper:
    def __init__(self, plan: FarmPlan, tracker: TrackerAddress, events: Events) -> None:
        self._ahead = time.time() - time.monotonic()
        now = self._now()
        self._plan = plan
        self._tracker = tracker
        self._events = events
        self._started = now
        self._devices = {m.name: OwnDevice(m, plan, Health(since=now)) for m in plan.members}
        self._hosts: dict[str, JoinedHost] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = listen()
        self._door = Door(events.warn)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._over = False
        self._status: dict[str, object] = {}
        self._status_at = -math.inf
        self._loans = Loans(self._held_by, plan.longest_reservation)
        self._reserved = self._read_reservations(now)
        self._read_hosts()

    def run(self) -> None:
        passed = -math.inf
        while not self._over:
            # Taken before reading: of what was sent until then, nothing is unread when a worker
            # or a session is judged, however long this process is stopped in between.
            now = time.monotonic()
            for key, _ in self._selector.select(_TICK):
                key.data()
            if now - passed > _SECONDS_BETWEEN_CHANGES:
                self._time_passed(self._ahead + now, health.silence_of_a_turn(passed, now))
                passed = now

    def close(self) -> None:
        # Before the clients are hung up on: a missing socket tells them not to wait for a restart.
        socket_path().unlink(missing_ok=True)
        for served in self._supervised():
            if served.worker is not None:
                served.worker.tell_to_end()  # all of them, before waiting for one
        for served in self._supervised():
            self._end(served)
        for key in tuple(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):  # the listener, and clients that wait
                key.fileobj.close()
        self._selector.close()

    def status(self) -> FarmStatus:
        return FarmStatus(
            pid=os.getpid(),
            started=self._started,
            now=self._now(),
            tracker=str(self._tracker),
            devices=tuple(
                replace(found, name=name)
                if isinstance(found, DeviceStatus)
                else found.status(self._held_by)
                for name, found in self._devices_by_name().items()
            ),
            hosts=tuple(host.status() for host in self._hosts.values()),
        )

    def _supervised(self) -> list[_Served]:
        return [*self._devices.values(), *self._hosts.values()]

    def _now(self) -> float:
        """Return seconds since 1970 that never go back, even if the clock is set."""
        return self._ahead + time.monotonic()

    def _devices_by_name(self) -> dict[str, OwnDevice | DeviceStatus]:
        """Return devices by their names in this farm: HOST/NAME if NAME is taken."""
        known: dict[str, OwnDevice | DeviceStatus] = dict(self._devices)
        for host in self._hosts.values():
            for device in host.devices_now():
                taken = device.name in known
                known[f"{host.name}/{device.name}" if taken else device.name] = device
        return known

    def _time_passed(self, now: float, silence: float) -> None:
        limits = self._plan.limits
        for device in self._devices.values():
            device.health = health.time_passed(device.health, now, limits)
            if device.worker is not None and device.wants_no_worker:
                self._end(device)
                device.health = health.was_withheld(device.health, now)
            self._loans.turn(device, now)
            if device.worker is None and device.wants_worker:
                self._start(device)
            lease, worker = device.lease, device.worker
            until = lease.until if lease and device.member.key else None
            if worker and until is not None and now > until + limits.overdue:
                worker.kill("a session did not end in time: the device hangs")
        for host in self._hosts.values():
            host.time_passed(now)
            if host.health.wants_worker and host.worker is None:
                self._start(host)
        for served in self._supervised():
            if served.worker is not None:
                served.worker.seconds_silent += silence
                if served.worker.seconds_silent > limits.silence:
                    served.worker.kill("its process hung and was killed")

    def _start(self, served: _Served) -> None:
        worker = served.worker = WorkerProcess.started(served.command(self._tracker.port))
        self._selector.register(
            worker.output, selectors.EVENT_READ, lambda: self._hear(served, worker)
        )

    def _end(self, served: _Served) -> None:
        worker, served.worker = served.worker, None
        if worker is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(worker.output)
            worker.end()
        served.worker_ended()

    def _hear(self, served: _Served, worker: WorkerProcess) -> None:
        if served.worker is not worker:
            return  # it was ended by an earlier message
        self._status_at = -math.inf
        messages, is_over = worker.read()
        try:
            for message in messages:
                self._take(served, message)
        except EdgekitError as error:
            worker.last_reason, is_over = error.message, True
        if is_over:
            self._lost(served, worker.last_reason or worker.ending())

    def _lost(self, served: _Served, reason: str) -> None:
        self._end(served)
        before = served.health.state
        served.was_lost(reason, self._now())
        if served.health.state != before:
            self._events.warn(f"{served.name} is {served.health.state}: {reason}")

    def _take(self, served: _Served, message: Mapping[str, Any]) -> None:
        if message.get("state") == "refused":
            self._events.warn(f"{served.name}: {message.get('detail', '')}"[:_LONGEST_EVENT])
            return
        news = served.take(message, self._now())
        if news:
            self._events.note(f"{served.name} {news}")

    def _read_hosts(self) -> None:
        wanted = known_hosts_of_farm()
        for name, host in list(self._hosts.items()):
            if wanted.get(name) != host.host:
                self._end(host)
                host.was_lost("the host has left the farm", self._now())
                del self._hosts[name]
        for name, entry in wanted.items():
            self._hosts.setdefault(
                name, JoinedHost(entry, self._now(), (os.getpid(), self._started))
            )

    def _accept(self) -> None:
        with suppress(OSError):  # no client is left
            while True:
                stream, _ = self._listener.accept()
                if self._door.admits(stream):
                    Client(stream, self._selector, self._answer)
                else:
                    stream.close()

    def _answer(self, client: Client, request: Request) -> dict[str, object] | None:
        """Answer a request; None if the answer comes later."""
        now, what = self._now(), request.do
        if what == "status":
            return self._recent_status()
        self._status_at = -math.inf
        if what in _OF_A_DEVICE:
            found = self._find(request.device)
            if isinstance(found, DeviceStatus):
                remote = replace(request, device=found.name)
                self._ask_host(client, remote, self._hosts[found.host])
                return None
            if what == "entry":
                member = found.member
                return {
                    "device": member.name,
                    "entry": dict(member.settings),
                    "address": member.address,
                    "is_line": not member.key,
                    "project": str(self._plan.project or ""),
                }
            if what == "take":
                self._loans.take(client, found, request, now)
            elif what in ("reserve", "release"):
                self._reserve_or_release(found, request, now)
            else:
                change = health.drained if what == "drain" else health.resumed
                found.health = change(found.health, now)
                if what == "drain":
                    self._loans.refuse_all(found, f"{found.name} was drained by hand")
            self._time_passed(now, silence=0.0)
            if what == "take":
                return None
        elif what == "lease":
            return self._lease(client, request, now)
        elif what == "priority":
            return {"priority": _HIGHEST_PRIORITY - self._held_by(request.owner)}
        elif what == "hosts":
            self._read_hosts()
        elif what == "down":
            self._over = True
        answer: dict[str, object] = encode(self.status())
        return answer

    def _recent_status(self) -> dict[str, object]:
        """Reuse a fresh status: that of a large farm is long, and many clients ask at once."""
        now = self._now()
        if self._loans.changed or now - self._status_at > _SECONDS_STATUS_LASTS:
            self._loans.changed = False
            self._status, self._status_at = encode(self.status()), now
        return self._status

    def _find(self, name: str) -> OwnDevice | DeviceStatus:
        known = self._devices_by_name()
        host, _, plain = name.partition("/")
        if name not in known and host in self._hosts:
            for device in self._hosts[host].devices_now():
                if device.name == plain:
                    return device
        if name not in known:
            raise no_such_device(name, known)
        return known[name]

    def _ask_host(self, client: Client, request: Request, host: JoinedHost) -> None:
        """Pass a request on to the host that has the device, and its answers to the client."""

        def answered(answer: Mapping[str, Any] | None) -> None:
            if answer is None:
                client.end()
            elif "error" in answer or request.do in ("take", "lease"):
                client.send(answer)
            elif request.do == "entry":
                client.send({**answer, "host": vars(host.host)})
            else:
                host.take({"state": "news", "status": answer, "ports": host.ports}, self._now())
                client.send(encode(self.status()))

        client.on_hangup = host.ask(request, answered)

    def _lease(self, client: Client, request: Request, now: float) -> dict[str, object] | None:
        port, until = request.port, now + (request.seconds or 0.0)
        for device in self._devices.values():
            if port and device.port == port:
                device.leases = {
                    other: lease
                    for other, lease in device.leases.items()
                    if (lease.until or 0) > now or other == device.offer
                }
                if len(device.leases) < _MOST_LEASES:
                    lease = Lease(request.owner, request.purpose, until, now)
                    device.leases[request.offer] = lease
                return {"noted": True}
        for host in self._hosts.values():
            if port and port in host.ports.values():
                self._ask_host(client, request, host)
                return None
        return {"noted": False}

    def _read_reservations(self, now: float) -> dict[str, Reservation]:
        try:
            found = read_reservations(now)
        except StorageError as error:
            self._events.warn(error.message)
            found = {}
        for name, reservation in found.items():
            if name in self._devices:
                self._devices[name].turns.reservation = reservation
        return found

    def _reserve_or_release(self, device: OwnDevice, request: Request, now: float) -> None:
        before = device.turns.reservation
        change = self._loans.reserve if request.do == "reserve" else self._loans.release
        change(device, request, now)
        after = device.turns.reservation
        # Those of devices that this farm lacks now stay in the file.
        others = {name: kept for name, kept in self._reserved.items() if name != device.name}
        found = {**others, **({} if after is None else {device.name: after})}
        try:
            write_reservations(found)
        except StorageError:
            device.turns.reservation = before
            raise
        self._reserved = found

    def _held_by(self, owner: str) -> int:
        now = self._now()
        leases = [device.lease for device in self._devices.values()]
        leases += [device.lease for host in self._hosts.values() for device in host.devices_now()]
        return sum(
            lease is not None
            and lease.owner == owner
            and (lease.until is None or lease.until > now)
            for lease in leases
        )
