"""Sessions on devices of the farm, with leases that name their owner and purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.devices.keeper_client import FarmDown, this_user
from edgekit.farm.control import fair_priority, farm_status, note_lease
from edgekit.rpc.protocol import Assigned, TrackerAddress, TrackerGone
from edgekit.rpc.session import (
    DEFAULT_SESSION_SECONDS,
    DEFAULT_WAIT_SECONDS,
    Claim,
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
    events: Events = SILENT,
) -> Iterator[Any]:
    """Open a session as `open_session` does, with a lease in this user's name and a fair priority.
    A tracker without a farm works too."""
    owner = this_user()

    def taken(assigned: Assigned) -> None:
        try:
            note_lease(assigned.port, assigned.match_key, owner, purpose, timeout)
        except FarmDown:
            pass  # the tracker runs without a farm
        except EdgekitError as error:
            events.note(f"the farm did not record the lease: {error.message}")

    claim = Claim(taken=taken)
    with suppress(DeviceError):
        claim = replace(claim, priority=fair_priority(owner))
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
                        claim=claim,
                        events=events,
                    )
                )
                break
            except (TrackerGone, UnknownKey):
                # Devices register within seconds with a tracker that was started again.
                if time.monotonic() > deadline or not _farm_has(key):
                    raise
                time.sleep(_SECONDS_BETWEEN_TRIES)
        yield session


def _farm_has(key: str) -> bool:
    try:
        return any(device.key == key for device in farm_status().devices)
    except DeviceError:
        return False
