"""What the farm says of itself: to people, scripts, the web page and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from edgekit.base.errors import DeviceError
from edgekit.farm.health import State


@dataclass(frozen=True)
class Lease:
    """Who has a device, as they said themselves; TVM's stock clients say nothing."""

    owner: str
    purpose: str
    until: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class DeviceStatus:
    name: str
    board: str
    key: str
    """What clients ask the tracker for; empty where it does not hand this one out."""
    state: State
    since: float
    reason: str
    again_at: float | None
    port: int
    """Where clients here reach it; 0 where they don't."""
    sessions: int
    faults: int
    lease: Lease | None
    load: float | None
    temperature: float | None
    """Degrees Celsius, of the hottest zone; None where the device has none to tell."""
    host: str = ""
    """Whose farm it belongs to, where that is another host's."""
    waiting: int = 0
    """Who wait for their turn on it; only of those that the tracker does not hand out."""


@dataclass(frozen=True)
class HostStatus:
    """Another host whose farm belongs to this one."""

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


def as_document(status: FarmStatus) -> dict[str, object]:
    """What `status_from` reads. dataclasses.asdict copies everything, which takes long where there
    are hundreds of devices."""
    devices = [
        {**vars(device), "lease": None if device.lease is None else vars(device.lease)}
        for device in status.devices
    ]
    return {**vars(status), "devices": devices, "hosts": [vars(host) for host in status.hosts]}


def status_from(document: object) -> FarmStatus:
    """What the keeper wrote; DeviceError where it is something else."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("no object")
        plain = {field.name: document[field.name] for field in fields(FarmStatus)}
        plain["devices"] = tuple(_device(item) for item in plain["devices"])
        plain["hosts"] = tuple(HostStatus(**item) for item in plain["hosts"])
        return FarmStatus(**plain)
    except (TypeError, KeyError, ValueError) as error:
        raise DeviceError(
            "the farm's answer makes no sense",
            hint="another edgekit may have started it: edgekit farm down, then up",
        ) from error


def _device(item: Mapping[str, Any]) -> DeviceStatus:
    lease = item["lease"]
    plain = {field.name: item[field.name] for field in fields(DeviceStatus)}
    return DeviceStatus(**{**plain, "lease": None if lease is None else Lease(**lease)})
