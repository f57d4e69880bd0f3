"""The status of a farm, as people, scripts, the web page and Prometheus read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from edgekit.base.decode import DecodeError, decode
from edgekit.base.errors import DeviceError
from edgekit.farm.health import State


@dataclass(frozen=True)
class Lease:
    """The user of a device, in their own words; TVM's stock clients have no lease."""

    owner: str
    purpose: str
    until: float
    """The end of the lease, in seconds since 1970."""


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
    """Whether it is a twin, whose times are not the board's."""
    waiting: int = 0
    """The number of clients that wait for a device that the farm itself lends."""


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
