"""The farm of a joined host as this farm's keeper sees it: its devices, and requests to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgekit.base.children import module_command
from edgekit.base.decode import decode, encode
from edgekit.base.errors import DeviceError
from edgekit.base.wording import counted
from edgekit.devices.keeper_messages import (
    DeviceStatus,
    FarmStatus,
    FromRelay,
    HostStatus,
    Port,
    Request,
    ToRelay,
    answer_as,
)
from edgekit.farm import health
from edgekit.farm.health import Health, Limits
from edgekit.farm.hosts.file import FarmHost
from edgekit.farm.worker_process import WorkerProcess
from edgekit.profiles.reader import NAME_PATTERN

_PATIENT = Limits(faults=sys.maxsize)
"""The limits for hosts: they are never quarantined."""
_MOST_DEVICES = 1000
_MOST_WAITERS = 1000
_SECONDS_OF_JITTER = 5.0
_LONGEST_TEXT = 300

Answer = Callable[[Mapping[str, Any] | None], None]
"""A function that takes each answer, and None after the last."""


@dataclass(frozen=True)
class _News:
    """A message about a host's farm, and the ports of this host that lead to its devices."""

    status: FarmStatus
    ports: Mapping[str, Port]


class JoinedHost:
    def __init__(self, host: FarmHost, now: float, keeper: tuple[int, float] = (0, 0.0)) -> None:
        """`keeper` is the process ID and start time of the keeper that the host has joined."""
        self.host = host
        self._keeper = keeper
        self.health = Health(since=now)
        self.worker: WorkerProcess | None = None
        self.devices: tuple[DeviceStatus, ...] = ()
        """The latest devices of the host, with times and ports of this farm."""
        self.ports: dict[str, int] = {}
        """The ports of this host that lead to the devices."""
        self._ahead = 0.0
        """The seconds that this host's clock is ahead; small jitter does not change it."""
        self._asked: dict[int, Answer] = {}
        self._number = 0

    @property
    def name(self) -> str:
        return self.host.name

    def command(self, tracker_port: int) -> tuple[str, ...]:
        return module_command("edgekit.farm.hosts.worker", self.name, str(tracker_port))

    def status(self) -> HostStatus:
        state = self.health
        shown = "up" if state.state == "free" else "lost" if state.state == "lost" else "starting"
        return HostStatus(
            self.name,
            self.host.address,
            shown,  # type: ignore[arg-type]
            state.since,
            state.reason,
            state.again_at,
            len(self.devices),
        )

    def take(self, message: Mapping[str, Any], now: float) -> str | None:
        """Take a message of its worker; return what people should hear of it."""
        if message.get("state") == "news":
            try:
                news = decode(_News, message, ignore_unknown=True)
                status, ahead = news.status, now - news.status.now
                if self._keeper == (status.pid, status.started):
                    raise DeviceError(
                        f"{self.name} is this host itself",
                        hint=f"remove it with edgekit farm leave {self.name}",
                    )
                if abs(ahead - self._ahead) > _SECONDS_OF_JITTER:
                    self._ahead = ahead
                self.ports = dict(news.ports)
                self.devices = _converted(self.host, status, self.ports, self._ahead)
            except ValueError as error:
                raise DeviceError(
                    f"the status of {self.name} is invalid: {error}",
                    hint="install the same edgekit on both hosts",
                ) from error
            if self.health.state != "free":
                self.health = health.came_up(self.health, now)
                return f"is up with {counted(len(self.devices), 'device')}"
        elif "id" in message:
            said = answer_as(FromRelay, message)
            if said.id not in self._asked:
                return None
            if said.over:
                self._asked.pop(said.id)(None)
            elif said.answer is not None:
                self._asked[said.id](said.answer)
        return None

    def worker_ended(self) -> None:
        """Do nothing: the last news of the devices stays."""

    def ask(self, request: Request, answer: Answer) -> Callable[[], None]:
        """Send a request; return a function that cancels it."""
        if self.worker is None:
            raise self.lost_error()
        self._number += 1
        number = self._number
        self._asked[number] = answer
        if not self.worker.tell(encode(ToRelay(number, encode(request)))):
            del self._asked[number]
            self.worker.kill("its process accepts no requests")
            raise self.lost_error()

        def forget() -> None:
            if self._asked.pop(number, None) is not None and self.worker is not None:
                self.worker.tell(encode(ToRelay(number, close=True)))

        return forget

    def was_lost(self, reason: str, now: float) -> None:
        self.health = health.was_lost(self.health, reason, now, _PATIENT)
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            error = self.lost_error()
            answer({"error": error.message, "hint": error.hint})
            answer(None)

    def time_passed(self, now: float) -> None:
        self.health = health.time_passed(self.health, now, _PATIENT)

    def devices_now(self) -> tuple[DeviceStatus, ...]:
        """Return its devices, as lost while the host is."""
        if self.health.state == "free":
            return self.devices
        gone = self.health
        return tuple(
            replace(
                device,
                state="lost",
                since=gone.since,
                reason=f"{self.name} is unreachable: {gone.reason}" if gone.reason else "",
                again_at=gone.again_at,
                port=0,
                lease=None,
                queue=(),
            )
            for device in self.devices
        )

    def lost_error(self) -> DeviceError:
        return DeviceError(
            f"the host {self.name} is unreachable"
            + (f": {self.health.reason}" if self.health.reason else ""),
            hint="`edgekit farm status` shows the time of the next try",
        )


def _converted(
    host: FarmHost, status: FarmStatus, ports: Mapping[str, int], ahead: float
) -> tuple[DeviceStatus, ...]:
    """Convert the host's own devices to this farm's clock and ports, and check every value."""
    return tuple(
        _checked(device, host, ahead, ports.get(device.name, 0))
        for device in status.devices[:_MOST_DEVICES]
        if not device.host
    )


def _checked(device: DeviceStatus, host: FarmHost, ahead: float, port: int) -> DeviceStatus:
    for name in (device.name, device.board, *((device.key,) if device.key != "" else ())):
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError("invalid name")
    lease, reservation, again_at = device.lease, device.reservation, device.again_at
    if lease is not None:
        until = None if lease.until is None else lease.until + ahead
        lease = replace(lease, until=until, since=lease.since + ahead)
    if reservation is not None:
        reservation = replace(reservation, until=reservation.until + ahead)
    waiters = device.queue[:_MOST_WAITERS]
    return replace(
        device,
        since=device.since + ahead,
        reason=device.reason[:_LONGEST_TEXT],
        again_at=None if again_at is None else again_at + ahead,
        port=port if device.port else 0,
        lease=lease,
        host=host.name,
        address=f"{device.address[:_LONGEST_TEXT]} on {host.address}",
        queue=tuple(replace(one, since=one.since + ahead) for one in waiters),
        reservation=reservation,
    )
