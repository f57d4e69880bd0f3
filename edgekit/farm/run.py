"""The life of a farm: one for each user, with its own tracker or the one that runs already."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import storage_errors, try_lock
from edgekit.devices.keeper_client import farm_folder
from edgekit.devices.keeper_messages import FarmStatus
from edgekit.farm.control import farm_status, lock_path
from edgekit.farm.keeper import Keeper
from edgekit.farm.plan import FarmPlan
from edgekit.rpc.protocol import TrackerAddress
from edgekit.rpc.tracker import RunningTracker, run_tracker, running_tracker

_SECONDS_FOR_TRACKER = 130.0
_SECONDS_TO_LOCK = 10.0
"""The time limit for a lock whose holder does not answer: it starts, ends, or only looks."""
_SECONDS_BETWEEN_TRIES = 0.05
_MANY_FILES = 1 << 16


def run_farm(
    plan: FarmPlan, *, started: Callable[[FarmStatus], None], events: Events = SILENT
) -> None:
    """Run the farm until interrupted or `edgekit farm down`. Leave nothing running."""
    _allow_many_files()
    with _only_one(), _tracker(plan.port, events) as tracker, ExitStack() as closing:
        keeper = Keeper(plan, tracker, events)
        closing.callback(keeper.close)
        started(keeper.status())
        keeper.run()


def _allow_many_files() -> None:
    """Raise the limit of 1024 open files: each device takes two, each client one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else min(_MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _only_one() -> Iterator[None]:
    folder = farm_folder()
    with storage_errors("keep a farm", folder):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        deadline = time.monotonic() + _SECONDS_TO_LOCK
        while (lock := try_lock(lock_path())) is None:
            # Held by a farm, or for a moment by a command that waits for one to end.
            if _is_up() or time.monotonic() > deadline:
                raise UsageError(
                    "a farm is up already",
                    hint="see `edgekit farm status`, or end it with `edgekit farm down`",
                )
            time.sleep(_SECONDS_BETWEEN_TRIES)
    try:
        yield
    finally:
        os.close(lock)


def _is_up() -> bool:
    try:
        farm_status()
    except EdgekitError:
        return False
    return True


@contextmanager
def _tracker(port: int, events: Events) -> Iterator[TrackerAddress]:
    """Use the tracker of this host, or run one during the block."""
    running = running_tracker()
    if running is not None:
        events.note(f"the tracker at {running.address} runs already and is used")
        yield running.address
        return
    stop, ready = threading.Event(), threading.Event()
    found: list[RunningTracker] = []
    failed: list[EdgekitError] = []

    def started(tracker: RunningTracker) -> None:
        found.append(tracker)
        ready.set()

    def work() -> None:
        try:
            run_tracker(port, started=started, events=events, stop=stop)
        except EdgekitError as error:
            failed.append(error)
            if ready.is_set():
                events.warn(f"the tracker is gone: {error.message}")
            ready.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        ready.wait(_SECONDS_FOR_TRACKER)
        if failed:
            raise failed[0]
        if not found:
            raise DeviceError(
                f"the tracker did not start within {_SECONDS_FOR_TRACKER:g} s",
                hint="run edgekit rpc tracker to see why",
            )
        yield found[0].address
    finally:
        stop.set()
        thread.join(timeout=15)
