"""Who keeps the farm: a worker for each device and each other host, and what it knows of them.

One thread hears everybody: workers on their pipes, commands on a socket, and the clock. What a
device's state becomes is decided in `health.py`.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import Events
from edgekit.base.own_listener import Door
from edgekit.base.wording import did_you_mean
from edgekit.farm import health
from edgekit.farm.clients import Client
from edgekit.farm.control import bound, socket_path
from edgekit.farm.health import Health
from edgekit.farm.hosts.file import known_hosts_of_farm
from edgekit.farm.hosts.joined import JoinedHost
from edgekit.farm.members import FarmPlan, Member
from edgekit.farm.status import DeviceStatus, FarmStatus, Lease, as_document
from edgekit.farm.turns import Turns, Wish
from edgekit.farm.worker_process import WorkerProcess
from edgekit.rpc.protocol import TrackerAddress

_TICK = 0.25
_SECONDS_BETWEEN_CHANGES = 0.05
_SECONDS_ASLEEP = 2.0
_SECONDS_STATUS_LASTS = 0.05
_HIGHEST_PRIORITY = 1000
_LONGEST_NAME = 100
_LONGEST_EVENT = 400
_MOST_LEASES = 50
"""Of one device, that are noted before their sessions are heard of."""


@dataclass
class _Device:
    member: Member
    health: Health
    worker: WorkerProcess | None = None
    port: int = 0
    offer: str = ""
    """Of the session that runs on it."""
    leases: dict[str, Lease] = field(default_factory=dict)
    """By the offer that each came with: a lease may be told before the session is."""
    turns: Turns = field(default_factory=Turns)
    load: float | None = None
    temperature: float | None = None

    @property
    def lease(self) -> Lease | None:
        if not self.member.key:
            return self.turns.lease
        return self.leases.get(self.offer) if self.health.state in ("busy", "draining") else None


class Keeper:
    def __init__(self, plan: FarmPlan, tracker: TrackerAddress, events: Events) -> None:
        self._ahead = time.time() - time.monotonic()
        now = self._now()
        self._plan = plan
        self._tracker = tracker
        self._events = events
        self._started = now
        self._devices = {m.name: _Device(m, Health(since=now)) for m in plan.members}
        self._hosts: dict[str, JoinedHost] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = bound()
        self._door = Door(events.warn)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._over = False
        self._status: dict[str, object] = {}
        self._status_at = -math.inf
        self._wishes = 0
        self._wishing: dict[int, Client] = {}
        self._read_hosts()

    def run(self) -> None:
        looked, passed = time.monotonic(), -math.inf
        while not self._over:
            for key, _ in self._selector.select(_TICK):
                key.data()
            if time.monotonic() - looked > _SECONDS_ASLEEP:
                # This process stood still, and heard nobody; that is not their silence.
                for kept in self._kept():
                    if kept.worker is not None:
                        kept.worker.last_sign = time.monotonic()
            looked = time.monotonic()
            if looked - passed > _SECONDS_BETWEEN_CHANGES:
                passed = looked
                self._time_passed()

    def close(self) -> None:
        for kept in self._kept():
            if kept.worker is not None:
                kept.worker.tell_to_end()  # all of them, before one is waited for
        for kept in self._kept():
            self._end(kept)
        self._selector.close()
        self._listener.close()
        socket_path().unlink(missing_ok=True)

    def status(self) -> FarmStatus:
        return FarmStatus(
            pid=os.getpid(),
            started=self._started,
            now=self._now(),
            tracker=str(self._tracker),
            devices=tuple(
                self._told(name, found) if isinstance(found, _Device) else replace(found, name=name)
                for name, found in self._known().items()
            ),
            hosts=tuple(host.status() for host in self._hosts.values()),
        )

    def _kept(self) -> list[_Device | JoinedHost]:
        return [*self._devices.values(), *self._hosts.values()]

    def _now(self) -> float:
        """Seconds since 1970 that only ever go on, whatever somebody sets the clock to."""
        return self._ahead + time.monotonic()

    def _known(self) -> dict[str, _Device | DeviceStatus]:
        """Every device by the name that is its own in this farm: HOST/NAME where NAME is taken."""
        known: dict[str, _Device | DeviceStatus] = dict(self._devices)
        for host in self._hosts.values():
            for device in host.devices_now():
                taken = device.name in known
                known[f"{host.name}/{device.name}" if taken else device.name] = device
        return known

    def _told(self, name: str, device: _Device) -> DeviceStatus:
        state = device.health
        is_lent = device.turns.holder is not None
        return DeviceStatus(
            name=name,
            board=device.member.board,
            key=device.member.key,
            state="busy" if is_lent and state.state == "free" else state.state,
            since=state.since,
            reason=state.reason,
            again_at=state.again_at,
            port=device.port if state.state in ("free", "busy", "draining") else 0,
            sessions=state.sessions,
            faults=len(state.faults),
            lease=device.lease,
            load=device.load,
            temperature=device.temperature,
            waiting=len(device.turns.waiting),
        )

    def _time_passed(self) -> None:
        now, limits = self._now(), self._plan.limits
        for device in self._devices.values():
            device.health = health.time_passed(device.health, now, limits)
            if device.health.wants_worker and device.worker is None:
                self._start(device)
            elif device.health.state in ("drained", "quarantined") and device.worker is not None:
                self._end(device)
            lease, worker = device.lease, device.worker
            if worker and device.member.key and lease and now > lease.until + limits.overdue:
                worker.kill("a session on it did not end in time: it hangs")
            over = device.turns.expired(now)
            if over is not None:
                self._dismiss(over, {"over": True})
            self._next_turn(device, now)
        for host in self._hosts.values():
            host.time_passed(now)
            if host.health.wants_worker and host.worker is None:
                self._start(host)
        for kept in self._kept():
            if kept.worker is not None and kept.worker.is_silent(limits.silence):
                kept.worker.kill("its process hung and was killed")

    def _start(self, kept: _Device | JoinedHost) -> None:
        if isinstance(kept, JoinedHost):
            worker = WorkerProcess.started(kept.command(self._tracker.port))
        else:
            member, project = kept.member, self._plan.project
            words = (member.name, str(project or ""), member.key)
            ports = (str(self._tracker.port), str(kept.port))
            worker = WorkerProcess.started((*self._plan.worker, *words, *ports))
        kept.worker = worker
        self._selector.register(
            worker.output, selectors.EVENT_READ, lambda: self._hear(kept, worker)
        )

    def _end(self, kept: _Device | JoinedHost) -> None:
        worker, kept.worker = kept.worker, None
        if worker is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(worker.output)
            worker.end()
        if isinstance(kept, _Device):
            kept.offer = ""
            kept.leases.clear()

    def _hear(self, kept: _Device | JoinedHost, worker: WorkerProcess) -> None:
        if kept.worker is not worker:
            return  # ended by what was heard just before it
        self._status_at = -math.inf
        messages, is_over = worker.heard()
        try:
            for message in messages:
                if isinstance(kept, JoinedHost):
                    self._take_from_host(kept, message)
                else:
                    self._take(kept, message)
        except EdgekitError as error:
            worker.last_reason, is_over = error.message, True
        if is_over:
            self._lost(kept, worker.last_reason or worker.ending())

    def _lost(self, kept: _Device | JoinedHost, reason: str) -> None:
        self._end(kept)
        before = kept.health.state
        if isinstance(kept, JoinedHost):
            kept.was_lost(reason, self._now())
            name = kept.name
        else:
            kept.health = health.was_lost(kept.health, reason, self._now(), self._plan.limits)
            name = kept.member.name
        if kept.health.state != before:
            self._events.warn(f"{name} is {kept.health.state}: {reason}")

    def _take(self, device: _Device, message: Mapping[str, Any]) -> None:
        now, state = self._now(), message.get("state")
        if state == "up":
            device.port = int(message.get("port", 0))
            device.health = health.came_up(device.health, now)
            self._events.note(f"{device.member.name} is up")
        elif state == "in use":
            device.offer = str(message.get("offer", ""))
            device.health = health.was_taken(device.health, now)
        elif state == "free":
            device.leases.pop(device.offer, None)
            device.offer = ""
            device.health = health.was_given_back(device.health, now)
        elif state == "refused":
            self._events.warn(f"{device.member.name}: {message.get('detail', '')}"[:_LONGEST_EVENT])
        elif state == "vitals":
            device.load = message.get("load")
            device.temperature = message.get("temperature")

    def _take_from_host(self, host: JoinedHost, message: Mapping[str, Any]) -> None:
        if message.get("state") == "refused":
            self._events.warn(f"{host.name}: {message.get('detail', '')}"[:_LONGEST_EVENT])
        elif host.take(message, self._now()):
            self._events.note(f"{host.name} is up with {len(host.devices)} devices")
        if host.identity == (os.getpid(), self._started):
            raise DeviceError(
                f"{host.name} is this host itself", hint=f"edgekit farm leave {host.name}"
            )

    def _read_hosts(self) -> None:
        wanted = known_hosts_of_farm()
        for name, host in list(self._hosts.items()):
            if wanted.get(name) != host.host:
                self._end(host)
                host.was_lost("it has left the farm", self._now())
                del self._hosts[name]
        for name, entry in wanted.items():
            self._hosts.setdefault(name, JoinedHost(entry, self._now()))

    def _accept(self) -> None:
        with suppress(OSError):  # until nobody is left
            while True:
                stream, _ = self._listener.accept()
                if self._door.admits(stream):
                    Client(stream, self._selector, self._done)
                else:
                    stream.close()

    def _done(self, client: Client, request: Mapping[str, Any]) -> dict[str, object] | None:
        """The answer; None where it comes later."""
        now, what = self._now(), request["do"]
        if what == "status":
            return self._recent_status()
        self._status_at = -math.inf
        if what in ("drain", "resume", "take"):
            name = str(request["device"])
            found = self._named(name)
            if isinstance(found, DeviceStatus):
                self._ask_host(client, {**request, "device": found.name}, self._hosts[found.host])
                return None
            if what == "take":
                self._wish(client, found, request, now)
                return None
            change = health.drained if what == "drain" else health.resumed
            found.health = change(found.health, now)
            if what == "drain":
                for wish in found.turns.waiting:
                    self._dismiss(wish, {"error": f"{name} was drained by hand", "hint": ""})
                found.turns.waiting.clear()
                self._time_passed()
        elif what == "lease":
            return self._lease(client, request, now)
        elif what == "priority":
            return {"priority": _HIGHEST_PRIORITY - self._held_by(str(request["owner"]))}
        elif what == "hosts":
            self._read_hosts()
        elif what == "down":
            self._over = True
        else:
            raise KeyError(what)
        return as_document(self.status())

    def _recent_status(self) -> dict[str, object]:
        """Of a large farm it is much, and many may ask at once."""
        now = self._now()
        if now - self._status_at > _SECONDS_STATUS_LASTS:
            self._status, self._status_at = as_document(self.status()), now
        return self._status

    def _named(self, name: str) -> _Device | DeviceStatus:
        known = self._known()
        host, _, plain = name.partition("/")
        if name not in known and host in self._hosts:
            for device in self._hosts[host].devices_now():
                if device.name == plain:
                    return device
        if name not in known:
            raise UsageError(
                f"the farm has no device {name[:_LONGEST_NAME]!r}",
                hint=did_you_mean(name, known, "`edgekit farm status` shows them"),
            )
        return known[name]

    def _ask_host(self, client: Client, request: Mapping[str, Any], host: JoinedHost) -> None:
        """Ask the farm that has the device, whose answers go to whoever asked us."""

        def answered(answer: Mapping[str, Any] | None) -> None:
            if answer is None:
                client.end()
            elif "error" in answer or request["do"] in ("take", "lease"):
                client.say(answer)
            else:
                host.take({"state": "news", "status": answer, "ports": host.ports}, self._now())
                client.say(as_document(self.status()))

        client.gone = host.ask(request, answered)

    def _lease(
        self, client: Client, request: Mapping[str, Any], now: float
    ) -> dict[str, object] | None:
        port, offer = int(request["port"]), str(request["offer"])
        until = now + float(request["seconds"])
        for device in self._devices.values():
            if port and device.port == port:
                device.leases = {
                    other: lease
                    for other, lease in device.leases.items()
                    if lease.until > now or other == device.offer
                }
                if len(device.leases) < _MOST_LEASES:
                    owner, purpose = _named_in(request)
                    device.leases[offer] = Lease(owner, purpose, until)
                return {"noted": True}
        for host in self._hosts.values():
            if port and port in host.ports.values():
                self._ask_host(client, request, host)
                return None
        return {"noted": False}

    def _wish(
        self, client: Client, device: _Device, request: Mapping[str, Any], now: float
    ) -> None:
        name = device.member.name
        if device.member.key:
            raise UsageError(
                f"{name} is handed out by the tracker", hint=f"ask it for {device.member.key}"
            )
        if device.health.state in ("drained", "draining"):
            raise UsageError(
                f"{name} is {device.health.state}: nobody gets it",
                hint=f"edgekit farm resume {name} puts it back",
            )
        self._wishes += 1
        wish = Wish(self._wishes, *_named_in(request), float(request["seconds"]))
        self._wishing[wish.number] = client
        client.gone = lambda: self._wish_no_more(device, wish)
        device.turns.add(wish)
        holder = device.turns.lease
        if holder is not None:
            client.say({"waiting": asdict(holder), "before": len(device.turns.waiting) - 1})
        self._next_turn(device, now)

    def _wish_no_more(self, device: _Device, wish: Wish) -> None:
        self._status_at = -math.inf
        self._wishing.pop(wish.number, None)
        device.turns.remove(wish.number)
        self._next_turn(device, self._now())

    def _next_turn(self, device: _Device, now: float) -> None:
        wish = device.turns.next(now, self._held_by)
        if wish is not None:
            self._wishing[wish.number].say({"granted": device.turns.until})

    def _dismiss(self, wish: Wish, why: Mapping[str, object]) -> None:
        client = self._wishing.pop(wish.number)
        client.say(why)
        client.end()

    def _held_by(self, owner: str) -> int:
        now = self._now()
        leases = [device.lease for device in self._devices.values()]
        leases += [device.lease for host in self._hosts.values() for device in host.devices_now()]
        return sum(
            lease is not None and lease.owner == owner and lease.until > now for lease in leases
        )


def _named_in(request: Mapping[str, Any]) -> tuple[str, str]:
    return str(request["owner"])[:_LONGEST_NAME], str(request["purpose"])[:_LONGEST_NAME]
