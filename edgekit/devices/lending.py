"""Leases of microcontrollers: the farm lends each line to one client at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import duration
from edgekit.devices.base import DeviceBusy
from edgekit.devices.keeper_client import (
    Conversation,
    FarmDown,
    ask,
    raise_refusal,
    this_user,
)

DEFAULT_LEASE_SECONDS = 1800.0
DEFAULT_WAIT_SECONDS = 600.0

_SECONDS_TO_ANSWER = 20.0
"""The time limit for the keeper's first answer, which it sends at once."""

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


@contextmanager
def lent(
    name: str,
    purpose: str,
    *,
    seconds: float = DEFAULT_LEASE_SECONDS,
    wait: float = DEFAULT_WAIT_SECONDS,
    events: Events = SILENT,
) -> Iterator[Lent]:
    """Wait for a device that TVM's tracker cannot hand out, and hold it during the block. Yield at
    once if no farm lends it."""
    if name in _lent_to_this_process or not _lends(name):
        yield Lent(name, None)
        return
    request = {"owner": this_user(), "purpose": purpose, "seconds": seconds}
    with Conversation({"do": "take", "device": name, **request}) as conversation:
        _wait_for_turn(conversation, name, wait, events)
        _lent_to_this_process.add(name)
        try:
            yield Lent(name, conversation)
        finally:
            _lent_to_this_process.discard(name)


def _lends(name: str) -> bool:
    """Tell whether a farm lends the device: it has no key, as TVM's tracker cannot hand it out."""
    try:
        devices = ask({"do": "status"}).get("devices")
    except FarmDown:
        return False
    listed = devices if isinstance(devices, list) else []
    return any(d.get("name") == name and d.get("key") == "" for d in listed if isinstance(d, dict))


def _wait_for_turn(conversation: Conversation, name: str, wait: float, events: Events) -> None:
    deadline = time.monotonic() + wait
    patience, holder = max(wait, _SECONDS_TO_ANSWER), "another client"
    while True:
        try:
            answer = conversation.next_line(patience)
        except TimeoutError as error:
            raise DeviceBusy(
                f"{name} did not become free within {duration(wait)}: {holder} has it",
                hint="wait longer; `edgekit farm status` shows until when it may take",
            ) from error
        if answer is None:
            raise DeviceError(f"the farm ended during the wait for {name}", hint="run it again")
        raise_refusal(answer)
        if "granted" in answer:
            return
        lease = answer.get("waiting")
        if isinstance(lease, dict):
            holder = f"{str(lease.get('owner'))[:100]} ({str(lease.get('purpose'))[:100]})"
            events.warn(f"{holder} has {name}: waiting")
        patience = max(deadline - time.monotonic(), 0.0)
