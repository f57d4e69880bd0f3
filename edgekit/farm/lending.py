"""A microcontroller's line is lent by the farm, as TVM's tracker lends boards: to one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import duration
from edgekit.farm.control import Conversation, FarmDown, farm_status, raise_refusal, this_user

if TYPE_CHECKING:
    from edgekit.bundle.folder import Bundle
    from edgekit.devices.base import Device, Session

DEFAULT_LEASE_SECONDS = 1800.0
DEFAULT_WAIT_SECONDS = 600.0

_SECONDS_TO_ANSWER = 20.0
"""For the keeper to say that it is our turn, or who has the device: it does so at once."""

_ours: set[str] = set()
"""What this process was lent: it needs no second lease for it."""


class LeaseOver(DeviceError):
    """The time that a device was lent for is over, or the farm is gone: others may have it now."""


@dataclass(frozen=True)
class Lent:
    """A device that is ours until the block ends, this process does, or the time is over."""

    name: str
    conversation: Conversation | None
    """None where no farm lends it: then the line itself keeps others away."""

    def check(self) -> None:
        """LeaseOver where it is not ours any more: whoever measures for long asks now and then."""
        if self.conversation is None:
            return
        try:
            said = self.conversation.next_line(0.0)
        except TimeoutError:
            return  # nothing was said: it is ours
        why = "its time is over" if said is not None else "the farm is gone"
        raise LeaseOver(
            f"{self.name} is not lent to us any more: {why}",
            hint="ask again; `edgekit farm status` shows who has it",
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
    """A device that TVM's tracker can't hand out, once it is our turn. Without a farm, or where the
    farm does not have it, nobody is asked."""
    if name in _ours or not _lends(name):
        yield Lent(name, None)
        return
    request = {"owner": this_user(), "purpose": purpose, "seconds": seconds}
    with Conversation({"do": "take", "device": name, **request}) as conversation:
        _wait_for_turn(conversation, name, wait, events)
        _ours.add(name)
        try:
            yield Lent(name, conversation)
        finally:
            _ours.discard(name)


@contextmanager
def opened_in_turn(
    device: Device, bundle: Bundle, purpose: str, events: Events = SILENT
) -> Iterator[Session]:
    """A session on a device; of one that the farm lends, when it is our turn."""
    from edgekit.devices.serial.device import SerialDevice

    with ExitStack() as stack:
        if isinstance(device, SerialDevice):
            stack.enter_context(lent(device.name, purpose, events=events))
        yield stack.enter_context(device.opened(bundle, events=events))


def _lends(name: str) -> bool:
    try:
        devices = farm_status().devices
    except FarmDown:
        return False
    return any(device.name == name and not device.key for device in devices)


def _wait_for_turn(conversation: Conversation, name: str, wait: float, events: Events) -> None:
    deadline = time.monotonic() + wait
    patience, who = max(wait, _SECONDS_TO_ANSWER), "somebody"
    while True:
        try:
            said = conversation.next_line(patience)
        except TimeoutError as error:
            raise DeviceError(
                f"{name} did not become free within {duration(wait)}: {who} has it",
                hint="wait longer, or ask them; `edgekit farm status` shows how long it may take",
            ) from error
        if said is None:
            raise DeviceError(
                f"the farm ended while {name} was waited for", hint="do the same again"
            )
        raise_refusal(said)
        if "granted" in said:
            return
        holder = said.get("waiting")
        if isinstance(holder, dict):
            who = f"{str(holder.get('owner'))[:100]} ({str(holder.get('purpose'))[:100]})"
            events.warn(f"{who} has {name}: waiting")
        patience = max(deadline - time.monotonic(), 0.0)
