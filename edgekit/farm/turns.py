"""The queue for a device that TVM's tracker cannot hand out: a microcontroller's line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgekit.farm.status import Lease


@dataclass(frozen=True)
class LeaseRequest:
    """A request for a device, granted or waiting."""

    number: int
    owner: str
    purpose: str
    seconds: float


class Turns:
    """The queue for one device: owners of fewer devices go first, then earlier requests."""

    def __init__(self) -> None:
        self.holder: LeaseRequest | None = None
        self.until = 0.0
        self.waiting: list[LeaseRequest] = []

    @property
    def lease(self) -> Lease | None:
        if self.holder is None:
            return None
        return Lease(self.holder.owner, self.holder.purpose, self.until)

    def add(self, request: LeaseRequest) -> None:
        self.waiting.append(request)

    def remove(self, number: int) -> None:
        """Remove a request that is served or given up."""
        if self.holder is not None and self.holder.number == number:
            self.holder = None
        self.waiting = [request for request in self.waiting if request.number != number]

    def expired(self, now: float) -> LeaseRequest | None:
        """Take the device from its holder if the time is over, and return that request."""
        if self.holder is None or now < self.until:
            return None
        over, self.holder = self.holder, None
        return over

    def next(self, now: float, held_by: Callable[[str], int]) -> LeaseRequest | None:
        """Give the device to the next request; None if it is not free or no request waits."""
        if self.holder is not None or not self.waiting:
            return None
        chosen = min(
            self.waiting, key=lambda request: held_by(request.owner)
        )  # the first of equals
        self.waiting.remove(chosen)
        self.holder, self.until = chosen, now + chosen.seconds
        return chosen
