"""Whose turn it is with a device that TVM's tracker can't hand out: a microcontroller's line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgekit.farm.status import Lease


@dataclass(frozen=True)
class Wish:
    """Somebody who has a device, or waits for it."""

    number: int
    owner: str
    purpose: str
    seconds: float


class Turns:
    """Of one device. Whoever has fewer devices goes first, then whoever came first."""

    def __init__(self) -> None:
        self.holder: Wish | None = None
        self.until = 0.0
        self.waiting: list[Wish] = []

    @property
    def lease(self) -> Lease | None:
        if self.holder is None:
            return None
        return Lease(self.holder.owner, self.holder.purpose, self.until)

    def add(self, wish: Wish) -> None:
        self.waiting.append(wish)

    def remove(self, number: int) -> None:
        """It has what it wanted, or wants it no more."""
        if self.holder is not None and self.holder.number == number:
            self.holder = None
        self.waiting = [wish for wish in self.waiting if wish.number != number]

    def expired(self, now: float) -> Wish | None:
        """Whose time is over; it has the device no more."""
        if self.holder is None or now < self.until:
            return None
        over, self.holder = self.holder, None
        return over

    def next(self, now: float, held_by: Callable[[str], int]) -> Wish | None:
        """Who gets it now; None where it is not free, or nobody waits."""
        if self.holder is not None or not self.waiting:
            return None
        chosen = min(self.waiting, key=lambda wish: held_by(wish.owner))  # the first of equals
        self.waiting.remove(chosen)
        self.holder, self.until = chosen, now + chosen.seconds
        return chosen
