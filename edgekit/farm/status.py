"""The status of a farm, as people, scripts, the web page and Prometheus read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from edgekit.base.decode import DecodeError, decode
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.wording import did_you_mean, duration
from edgekit.farm.health import State

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Lease:
    """The user of a device, in their own words; TVM's stock clients have no lease."""

    owner: str
    purpose: str
    until: float | None
    """The end of the lease, in seconds since 1970; None if only its owner ends it."""
    since: float = 0.0
    """The begin of the lease; 0 if unknown."""


@dataclass(frozen=True)
class Reservation:
    """A time during which a device is for one user."""

    user: str
    """user@host, as the user's commands give it."""
    until: float
    purpose: str = ""


@dataclass(frozen=True)
class Waiter:
    """A client in a device's queue."""

    owner: str
    purpose: str
    since: float


@dataclass(frozen=True)
class DeviceStatus:
    name: str
    board: str
    key: str
    """The key that clients ask the tracker for; empty if it does not hand out the device."""
    state: State
    since: float
    reason: str
    again_at: float | None
    port: int
    """The port of this host that leads to the device, or 0."""
    sessions: int
    faults: int
    lease: Lease | None
    load: float | None
    temperature: float | None
    """Degrees Celsius in the hottest zone; None if unknown."""
    host: str = ""
    """The joined host that has the device; empty for a device of this host."""
    is_emulated: bool = False
    """Whether it is emulated: its times are not the board's."""
    address: str = ""
    """The address of the device, which tells two devices of one name apart."""
    queue: tuple[Waiter, ...] = ()
    """The clients that wait for a lease, the next one first."""
    reservation: Reservation | None = None


@dataclass(frozen=True)
class HostStatus:
    """A host whose farm has joined this one."""

    name: str
    address: str
    state: Literal["starting", "up", "lost"]
    since: float
    reason: str
    again_at: float | None
    devices: int


@dataclass(frozen=True)
class FarmStatus:
    pid: int
    started: float
    now: float
    tracker: str
    devices: tuple[DeviceStatus, ...]
    hosts: tuple[HostStatus, ...] = ()

    def device(self, name: str) -> DeviceStatus:
        """Return the device of that name, which may name its host; UsageError if it is unknown."""
        host, _, plain = name.partition("/")
        for device in self.devices:
            if device.name == name or (device.host, device.name) == (host, plain):
                return device
        raise no_such_device(name, [device.name for device in self.devices])


def no_such_device(name: str, known: Iterable[str]) -> UsageError:
    return UsageError(
        f"the farm has no device {name[:_LONGEST_NAME]!r}",
        hint=did_you_mean(name, known, "`edgekit farm status` lists the devices"),
    )


def users_of(device: DeviceStatus, now: float) -> str:
    """Say who has a device, for whom it is reserved, and how many wait."""
    lease, reservation = device.lease, device.reservation
    parts = [f"{lease.owner}: {lease.purpose}"] if lease is not None else []
    if reservation is not None:
        left = duration(max(reservation.until - now, 0))
        why = f" ({reservation.purpose})" if reservation.purpose else ""
        parts.append(f"reserved for {reservation.user}{why}, {left} left")
    if device.queue:
        parts.append(f"{len(device.queue)} waiting")
    return "; ".join(parts)


def status_from(document: object) -> FarmStatus:
    """Read what a keeper wrote; DeviceError if it is invalid."""
    try:
        return decode(FarmStatus, document, ignore_unknown=True)
    except DecodeError as error:
        raise DeviceError(
            f"the farm's answer is invalid: {error}",
            hint="another version of edgekit may have started it: run edgekit farm down, then up",
        ) from error


def changed(before: FarmStatus, after: FarmStatus) -> bool:
    """Say whether something happened; time, load and temperature do not count."""
    return _without_readings(before) != _without_readings(after)


def _without_readings(status: FarmStatus) -> FarmStatus:
    devices = tuple(replace(device, load=None, temperature=None) for device in status.devices)
    return replace(status, now=0.0, devices=devices)
