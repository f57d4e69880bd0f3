"""A session on a device of the farm, which then knows who has it and for what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.farm.control import FarmDown, fair_priority, farm_status, note_lease, this_user
from edgekit.rpc.protocol import Assigned, TrackerAddress, TrackerGone
from edgekit.rpc.session import (
    DEFAULT_SESSION_SECONDS,
    DEFAULT_WAIT_SECONDS,
    UnknownKey,
    open_session,
)

_SECONDS_BETWEEN_TRIES = 0.5


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
    deadline = time.monotonic() + wait
    with ExitStack() as opened:
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                session = opened.enter_context(
                    open_session(
                        key,
                        timeout,
                        tracker=tracker,
                        wait=left,
                        priority=chosen,
                        taken=taken,
                        events=events,
                    )
                )
                break
            except (TrackerGone, UnknownKey):
                # A tracker that was started again knows its devices within seconds.
                if time.monotonic() > deadline or not _farm_has(key):
                    raise
                time.sleep(_SECONDS_BETWEEN_TRIES)
        yield session


def _farm_has(key: str) -> bool:
    try:
        return any(device.key == key for device in farm_status().devices)
    except DeviceError:
        return False
