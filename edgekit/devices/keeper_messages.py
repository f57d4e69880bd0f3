"""Requests to the keeper of a farm, and its answers: the status of the farm and of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from edgekit.base.decode import Convert, DecodeError, Range, decode
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.wording import did_you_mean, duration

_LONGEST_NAME = 100

Words = Annotated[str, Convert("text", lambda value: str(value)[:_LONGEST_NAME])]
"""A name or a purpose, in a user's own words. More than a line shows is cut off."""
Port = Annotated[int, Range(0, (1 << 16) - 1)]
State = Literal[
    "starting", "free", "busy", "reserved", "lost", "quarantined", "draining", "drained"
]
"""The state of a device of a farm."""
T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What a client of the keeper wants, with the arguments that it takes."""

    do: Literal[
        "status", "hosts", "down", "entry", "drain", "resume", "take", "reserve", "release",
        "lease", "priority",
    ]  # fmt: skip
    device: str = ""
    owner: Words = ""
    purpose: Words = ""
    seconds: float | None = None
    """The length of a lease or reservation; None if only the owner ends it."""
    port: Port = 0
    offer: str = ""
    """The tracker's offer of the session that a lease is about."""
    force: bool = False

    def __post_init__(self) -> None:
        if self.do in ("reserve", "lease") and self.seconds is None:
            raise ValueError("it lacks the seconds")


@dataclass(frozen=True)
class ToRelay:
    """A line to the relay on a joined host: a request with its number, or the end of one."""

    id: int
    request: Mapping[str, object] | None = None
    close: bool = False


@dataclass(frozen=True)
class FromRelay:
    """A line of the relay: an answer to the request of that number, or the end of the answers."""

    id: int
    answer: Mapping[str, object] | None = None
    over: bool = False


@dataclass(frozen=True)
class Lease:
    """The user of a device, in their own words; TVM's stock clients have no lease."""

    owner: Words
    purpose: Words
    until: float | None
    """The end of the lease, in seconds since 1970; None if only its owner ends it."""
    since: float = 0.0
    """The begin of the lease; 0 if unknown."""


@dataclass(frozen=True)
class Reservation:
    """A time during which a device is for one user."""

    user: Words
    """user@host, as the user's commands give it."""
    until: float
    purpose: Words = ""


@dataclass(frozen=True)
class Waiter:
    """A client in a device's queue."""

    owner: Words
    purpose: Words
    since: float


@dataclass(frozen=True)
class Turn:
    """The place of a client in a device's queue."""

    waiting: Lease | None
    """The lease that has the device."""
    before: int
    """The number of clients that go first."""
    reserved: Reservation | None
    now: float
    """The keeper's time, as the clock of the client may differ."""


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
    is_emulated: bool | None = None
    """Whether it is emulated: its times are not the board's. None until it was up."""
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


def kind_of(device: DeviceStatus) -> str:
    """Say whether a device is emulated or hardware; empty until it was up."""
    if device.is_emulated is None:
        return ""
    return "emulated" if device.is_emulated else "hardware"


def status_from(document: object) -> FarmStatus:
    """Read what a keeper wrote; DeviceError if it is invalid."""
    return answer_as(FarmStatus, document)


def answer_as(kind: type[T], document: object) -> T:
    """Read an answer of a keeper; DeviceError if it is invalid."""
    try:
        return decode(kind, document, ignore_unknown=True)
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
