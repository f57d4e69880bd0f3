"""Leases of devices: the farm lends each of its devices to one client at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from edgekit.base.decode import encode
from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.options import option
from edgekit.base.wording import duration
from edgekit.devices.base import DeviceBusy
from edgekit.devices.keeper_client import (
    Conversation,
    FarmDied,
    FarmDown,
    FarmSilent,
    ask,
    raise_refusal,
    this_user,
)
from edgekit.devices.keeper_messages import DeviceStatus, Request, Turn, answer_as, status_from

DEFAULT_WAIT_SECONDS = 600.0

_SECONDS_TO_ANSWER = 20.0
"""The time limit for the keeper's first answer, which it sends at once."""
_SECONDS_BETWEEN_TRIES = 0.2
_DAY_SECONDS = 24 * 3600.0

_lent_to_this_process: set[str] = set()
"""The devices lent to this process, which need no second lease."""


class LeaseOver(DeviceError):
    """The lease has ended, or the farm has: others may use the device now."""


@dataclass(frozen=True)
class Lent:
    """A device that is lent until the block, this process or the lease ends."""

    name: str
    conversation: Conversation | None
    """The conversation that holds the lease; None if no farm lends the device."""

    def check(self) -> None:
        """Raise LeaseOver if the lease has ended. Long measurements call this now and then."""
        if self.conversation is None:
            return
        try:
            answer = self.conversation.next_line(0.0)
        except TimeoutError:
            return  # the keeper would have said that the lease has ended
        why = "its time is over" if answer is not None else "the farm is gone"
        raise LeaseOver(
            f"the lease of {self.name} has ended: {why}",
            hint="run it again; `edgekit farm status` shows who has the device",
        )


class Lender(Protocol):
    """What decides who may use a device, before the device's own lock does."""

    def lent(
        self, name: str, purpose: str, *, address: str, wait: float, events: Events
    ) -> AbstractContextManager[Lent]:
        """Wait for the device at that address, and hold it during the block."""
        ...

    def check_free(self, name: str, address: str) -> bool:
        """Say whether this lender has the device and it is free; DeviceBusy if it is in use."""
        ...


class _Farm:
    """The farm of this user on this host, if one is up."""

    def lent(
        self,
        name: str,
        purpose: str,
        *,
        address: str = "",
        wait: float = DEFAULT_WAIT_SECONDS,
        events: Events = SILENT,
    ) -> AbstractContextManager[Lent]:
        return lent(name, purpose, address=address, wait=wait, events=events)

    def check_free(self, name: str, address: str) -> bool:
        found = _found(name, address)
        if found is None:
            return False
        if name in _lent_to_this_process:
            return True
        lease, reservation = found.lease, found.reservation
        if lease is not None:
            raise _busy(f"{lease.owner} ({lease.purpose}) has {name}")
        if reservation is not None and reservation.user != this_user().rpartition(":")[0]:
            raise _busy(f"{name} is reserved for {reservation.user}")
        if found.state in ("busy", "draining", "drained"):
            raise _busy(f"{name} is {found.state}")
        return found.state in ("free", "reserved", "starting")


class _NoLender:
    """The lender of devices that a farm itself opens."""

    def lent(
        self, name: str, purpose: str, *, address: str, wait: float, events: Events
    ) -> AbstractContextManager[Lent]:
        return _held_by_lock(name)

    def check_free(self, name: str, address: str) -> bool:
        return False


FARM: Lender = _Farm()
NO_LENDER: Lender = _NoLender()


@contextmanager
def _held_by_lock(name: str) -> Iterator[Lent]:
    yield Lent(name, None)


@contextmanager
def lent(
    name: str,
    purpose: str,
    *,
    address: str = "",
    seconds: float | None = None,
    wait: float = DEFAULT_WAIT_SECONDS,
    events: Events = SILENT,
) -> Iterator[Lent]:
    """Wait in the farm's queue for a device, and hold it during the block, for `seconds` at most.

    Yield at once if no farm of this user has a device of that address, or without an address, of
    that name. A farm that is killed during the wait is asked again once it is up; one that ends in
    an orderly way no longer lends its devices.
    """
    if name in _lent_to_this_process:
        yield Lent(name, None)
        return
    deadline = time.monotonic() + wait
    with ExitStack() as held:
        conversation = None
        found = _found(name, address)
        while found is not None:
            with suppress(FarmDown):  # it ended since it was asked
                request = Request("take", found.name, this_user(), purpose, seconds)
                asked = held.enter_context(Conversation(encode(request)))
                if _wait_for_turn(asked, name, wait, deadline, events):
                    conversation = asked
                    break
            held.close()
            found = _found_after_restart(name, address, wait, deadline, events)
        if conversation is None:
            yield Lent(name, None)
            return
        _lent_to_this_process.add(name)
        try:
            yield Lent(name, conversation)
        finally:
            _lent_to_this_process.discard(name)


def _found(name: str, address: str) -> DeviceStatus | None:
    """Return the farm's status of a device; None if no farm of this user has it."""
    try:
        return _of_farm(name, address)
    except FarmDown:
        return None


def _of_farm(name: str, address: str) -> DeviceStatus | None:
    for device in status_from(ask(Request("status"))).devices:
        by_address = bool(device.address and address)
        if device.address == address if by_address else device.name == name:
            return device
    return None


def _found_after_restart(
    name: str, address: str, wait: float, deadline: float, events: Events
) -> DeviceStatus | None:
    """Return the device's status once a killed farm is up again; None if no farm has it now.

    How long the restart takes does not decide who gets the device: the client waits until its own
    time is over.
    """
    told = False
    while True:
        try:
            return _of_farm(name, address)
        except (FarmDied, FarmSilent) as error:
            if time.monotonic() > deadline:
                raise DeviceBusy(
                    f"{name} did not become free within {duration(wait)}: its farm was killed and"
                    " is not up again",
                    hint="start the farm with `edgekit farm up`, or run this again to use the"
                    " device without it",
                ) from error
        except FarmDown:
            events.warn(f"the farm ended during the wait for {name} and no longer lends it")
            return None
        if not told:
            events.warn(f"the farm ended during the wait for {name}: waiting for its restart")
            told = True
        time.sleep(_SECONDS_BETWEEN_TRIES)


def _wait_for_turn(
    conversation: Conversation, name: str, wait: float, deadline: float, events: Events
) -> bool:
    """Wait until the device is lent; False if the farm ended."""
    left = deadline - time.monotonic()
    patience, holder, told = max(left, _SECONDS_TO_ANSWER), f"another client has {name}", ""
    while True:
        try:
            answer = conversation.next_line(patience)
        except TimeoutError as error:
            raise DeviceBusy(
                f"{name} did not become free within {duration(wait)}: {holder}",
                hint=f"wait longer with {option('timeout')}; `edgekit farm queue` shows who waits",
            ) from error
        if answer is None:
            return False
        raise_refusal(answer)
        if "granted" in answer:
            return True
        if "waiting" in answer:
            turn = answer_as(Turn, answer)
            holder = _holder(turn, name)
            text = f"{holder}: waiting, number {turn.before + 1} in the queue"
            if text != told and wait > 0:
                told = text
                events.warn(text)
        patience = max(deadline - time.monotonic(), 0.0)


def _holder(turn: Turn, name: str) -> str:
    """Say who keeps a client waiting, since when or until when."""
    if turn.reserved is not None:
        until = _clock(turn.reserved.until - turn.now)
        return f"{name} is reserved for {turn.reserved.user}" + (until and f" until {until}")
    if turn.waiting is not None:
        since = _clock(min(turn.waiting.since - turn.now, 0.0)) if turn.waiting.since else ""
        who = f"{turn.waiting.owner} ({turn.waiting.purpose}) has {name}"
        return who + (since and f" since {since}")
    return f"a client of the tracker has {name}"


def _clock(seconds: float) -> str:
    """Return the time of day in so many seconds, with the date if it is not today's."""
    if abs(seconds) >= 1000 * _DAY_SECONDS:
        return ""
    now = datetime.now()
    then = now + timedelta(seconds=seconds)
    return f"{then:%H:%M}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"


def _busy(text: str) -> DeviceBusy:
    return DeviceBusy(
        text, hint="wait, or name another device; `edgekit farm queue` shows who waits"
    )
