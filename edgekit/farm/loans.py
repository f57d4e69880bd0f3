"""Leases that the farm itself grants: clients queue for a device, and hold it in turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.base.decode import DecodeError, decode_json, encode
from edgekit.base.errors import StorageError, UsageError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.wording import duration
from edgekit.devices.keeper_client import farm_folder
from edgekit.devices.keeper_messages import Request, Reservation, Turn
from edgekit.farm import health
from edgekit.farm.clients import Client
from edgekit.farm.own_device import OwnDevice
from edgekit.farm.turns import LeaseRequest, user_of

_SHORTEST_RESERVATION = 1.0


class Loans:
    """The queues of all devices of this host, and the clients in them."""

    def __init__(self, held_by: Callable[[str], int], longest_reservation: float) -> None:
        self._held_by = held_by
        self._longest = longest_reservation
        self._clients: dict[int, Client] = {}
        self._told: dict[int, object] = {}
        """What each waiting client was told last."""
        self._last_number = 0
        self.changed = False
        """Whether a lease or a queue has changed since a caller reset this."""

    def take(self, client: Client, device: OwnDevice, request: Request, now: float) -> None:
        """Put a client's request into the device's queue. `turn` grants it."""
        if device.health.state in ("drained", "draining"):
            raise UsageError(
                f"{device.name} is {device.health.state} and not lent",
                hint=f"put it back with edgekit farm resume {device.name}",
            )
        self._last_number += 1
        waiting = LeaseRequest(
            self._last_number, request.owner, request.purpose, request.seconds, now
        )
        self._clients[waiting.number] = client
        device.turns.add(waiting)

        def hung_up() -> None:
            self.changed = True
            self._forget(waiting)
            device.turns.remove(waiting.number)

        client.on_hangup = hung_up

    def turn(self, device: OwnDevice, now: float) -> None:
        """End what is over, give the device to the next client, and tell the others their place."""
        turns = device.turns
        over = turns.expired(now)
        if over is not None:
            self.changed = True
            self._dismiss(over, {"over": True})
        if turns.reservation is not None and now >= turns.reservation.until:
            turns.reservation, self.changed = None, True
        if device.can_be_lent:
            granted = turns.next(now, self._held_by)
            if granted is not None:
                self.changed = True
                if device.member.key:  # the worker of another device counts its sessions
                    device.health = health.was_lent(device.health)
                self._clients[granted.number].send({"granted": turns.until})
        for place, waiting in enumerate(turns.queue(self._held_by)):
            self._tell(device, waiting, place, now)

    def refuse_all(self, device: OwnDevice, why: str) -> None:
        for waiting in device.turns.waiting:
            self._dismiss(waiting, {"error": why, "hint": ""})
        device.turns.waiting.clear()

    def reserve(self, device: OwnDevice, request: Request, now: float) -> None:
        """Reserve a device for the user who asks; the work under way ends first."""
        user, seconds = user_of(request.owner), request.seconds or 0.0
        if not _SHORTEST_RESERVATION <= seconds <= self._longest:
            raise UsageError(
                f"a reservation may last from 1 s to {duration(self._longest)}",
                hint="the owner of the farm sets the limit: edgekit farm up --longest-reservation",
            )
        if not device.turns.admits(user):
            raise _reserved(device, now)
        device.turns.reservation = Reservation(user, now + seconds, request.purpose)

    def release(self, device: OwnDevice, request: Request, now: float) -> None:
        """End a reservation of the user who asks; with `force`, that of any user."""
        user = user_of(request.owner)
        if device.turns.reservation is None:
            raise UsageError(
                f"{device.name} is not reserved", hint="`edgekit farm queue` lists the reservations"
            )
        if not device.turns.admits(user) and not request.force:
            raise _reserved(device, now)
        device.turns.reservation = None

    def _tell(self, device: OwnDevice, waiting: LeaseRequest, place: int, now: float) -> None:
        lease = device.lease
        reservation = None if device.turns.admits(waiting.user) else device.turns.reservation
        news = (lease, place, reservation)
        if self._told.get(waiting.number) == news:
            return
        self._told[waiting.number] = news
        self._clients[waiting.number].send(encode(Turn(lease, place, reservation, now)))

    def _dismiss(self, request: LeaseRequest, why: Mapping[str, object]) -> None:
        client = self._forget(request)
        client.send(why)
        client.end()

    def _forget(self, request: LeaseRequest) -> Client:
        self._told.pop(request.number, None)
        return self._clients.pop(request.number)


def _reserved(device: OwnDevice, now: float) -> UsageError:
    reservation = device.turns.reservation
    assert reservation is not None
    left = duration(max(reservation.until - now, 0))
    return UsageError(
        f"{device.name} is reserved for {reservation.user} for another {left}",
        hint=f"wait for its end; edgekit farm release {device.name} --force ends it now",
    )


@dataclass(frozen=True)
class _File:
    reservations: Mapping[str, Reservation]


def reservations_file() -> Path:
    return farm_folder() / "reservations.json"


def read_reservations(now: float) -> dict[str, Reservation]:
    """Return the reservations by device that are not over; StorageError if the file is damaged."""
    path = reservations_file()
    with storage_errors("read the reservations", path):
        if not path.exists():
            return {}
        text = path.read_text(errors="replace")
    try:
        found = decode_json(_File, text)
    except (DecodeError, ValueError) as error:
        raise StorageError(
            f"the reservations in {path} are damaged: {error}",
            hint="reserve the devices again",
        ) from error
    return {name: one for name, one in found.reservations.items() if one.until > now}


def write_reservations(reservations: Mapping[str, Reservation]) -> None:
    path = reservations_file()
    document = {"reservations": {name: asdict(one) for name, one in reservations.items()}}
    with storage_errors("write the reservations", path):
        write_atomically(path, json.dumps(document))
