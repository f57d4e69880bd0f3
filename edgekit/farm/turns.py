"""The queue for one device. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgekit.devices.keeper_messages import Lease, Reservation, Waiter


@dataclass(frozen=True)
class LeaseRequest:
    """A request for a device, granted or waiting."""

    number: int
    owner: str
    purpose: str
    seconds: float | None = None
    """The limit of the lease; None if only the owner ends it."""
    since: float = 0.0

    @property
    def user(self) -> str:
        return user_of(self.owner)


def user_of(owner: str) -> str:
    """Return user@host of user@host:process."""
    return owner.rpartition(":")[0] or owner


class Turns:
    """The queue for one device: owners of fewer devices go first, then earlier requests. A
    reservation keeps the requests of other users waiting."""

    def __init__(self) -> None:
        self.holder: LeaseRequest | None = None
        self.since = 0.0
        self.until: float | None = None
        self.waiting: list[LeaseRequest] = []
        self.reservation: Reservation | None = None

    @property
    def lease(self) -> Lease | None:
        if self.holder is None:
            return None
        return Lease(self.holder.owner, self.holder.purpose, self.until, self.since)

    def add(self, request: LeaseRequest) -> None:
        self.waiting.append(request)

    def remove(self, number: int) -> None:
        """Remove a request that is served or given up."""
        if self.holder is not None and self.holder.number == number:
            self.holder = None
        self.waiting = [request for request in self.waiting if request.number != number]

    def expired(self, now: float) -> LeaseRequest | None:
        """Take the device from its holder if the time is over, and return that request."""
        if self.holder is None or self.until is None or now < self.until:
            return None
        over, self.holder = self.holder, None
        return over

    def admits(self, user: str) -> bool:
        """Say whether the reservation, if there is one, lets a user have the device."""
        return self.reservation is None or self.reservation.user == user

    def queue(self, held_by: Callable[[str], int]) -> list[LeaseRequest]:
        """Return the waiting requests in the order in which they get the device."""
        return sorted(self.waiting, key=lambda one: (not self.admits(one.user), held_by(one.owner)))

    def waiters(self, held_by: Callable[[str], int]) -> tuple[Waiter, ...]:
        return tuple(Waiter(one.owner, one.purpose, one.since) for one in self.queue(held_by))

    def next(self, now: float, held_by: Callable[[str], int]) -> LeaseRequest | None:
        """Give the device to the next request; None if it is not free or no request may have it."""
        queue = self.queue(held_by)
        if self.holder is not None or not queue or not self.admits(queue[0].user):
            return None
        chosen = queue[0]
        self.waiting.remove(chosen)
        self.holder, self.since = chosen, now
        self.until = None if chosen.seconds is None else now + chosen.seconds
        return chosen
