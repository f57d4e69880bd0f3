"""A session on a device of the farm, which then knows who has it and for what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from edgekit.errors import DeviceError, EdgekitError
from edgekit.events import SILENT, Events
from edgekit.farm.control import FarmDown, fair_priority, note_lease, this_user
from edgekit.rpc.protocol import Assigned, TrackerAddress
from edgekit.rpc.session import DEFAULT_SESSION_SECONDS, DEFAULT_WAIT_SECONDS, open_session


@contextmanager
def farm_session(
    key: str,
    purpose: str,
    timeout: float = DEFAULT_SESSION_SECONDS,
    *,
    tracker: TrackerAddress | None = None,
    wait: float = DEFAULT_WAIT_SECONDS,
    priority: int | None = None,
    events: Events = SILENT,
) -> Iterator[Any]:
    """As `open_session`, with a lease in this user's name. Where nothing else is said, whoever has
    fewer devices goes first. Works without a farm too, on any tracker."""
    owner = this_user()

    def taken(assigned: Assigned) -> None:
        try:
            note_lease(assigned.port, assigned.match_key, owner, purpose, timeout)
        except FarmDown:
            pass  # a tracker alone: nobody wants to know
        except EdgekitError as error:
            events.note(f"the farm does not know of the lease: {error.message}")

    chosen = priority
    if chosen is None:
        chosen = 1
        with suppress(DeviceError):
            chosen = fair_priority(owner)
    with open_session(
        key,
        timeout,
        tracker=tracker,
        wait=wait,
        priority=chosen,
        taken=taken,
        events=events,
    ) as session:
        yield session
