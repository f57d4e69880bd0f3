"""What the farm's commands ask the keeper for, and the keeper's own end of the socket."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.base.files import storage_errors, try_lock
from edgekit.base.unix_sockets import reachable
from edgekit.devices.keeper_client import LONGEST_LINE, ask, farm_folder, socket_path, this_user
from edgekit.devices.keeper_messages import FarmStatus, Request, status_from

_BLOCK = 1 << 16
_SECONDS_TO_END = 30.0
_BACKLOG = 1024
"""The number of clients that may wait for the keeper to accept them; others try again."""
_SECONDS_BETWEEN_TRIES = 0.05


def lock_path() -> Path:
    return farm_folder() / "lock"


def farm_status() -> FarmStatus:
    return status_from(ask(Request("status")))


def drain(name: str) -> FarmStatus:
    """Stop handing out a device; a running session ends first."""
    return status_from(ask(Request("drain", name)))


def resume(name: str) -> FarmStatus:
    return status_from(ask(Request("resume", name)))


def reserve(name: str, seconds: float, purpose: str = "") -> FarmStatus:
    """Reserve a device for this user; what others do on it ends first."""
    return status_from(ask(Request("reserve", name, this_user(), purpose, seconds)))


def release(name: str, *, force: bool = False) -> FarmStatus:
    """End this user's reservation of a device; with `force`, that of any user."""
    return status_from(ask(Request("release", name, this_user(), force=force)))


def down() -> FarmStatus:
    """Tell the farm to end, and return its last status."""
    return status_from(ask(Request("down")))


def wait_for_end(pid: int) -> None:
    """Wait until the farm gives back its lock, which it does last."""
    deadline = time.monotonic() + _SECONDS_TO_END
    while (lock := try_lock(lock_path())) is None:
        if time.monotonic() > deadline:
            raise DeviceError(
                f"the farm (process {pid}) does not end",
                hint=f"end it and its child processes with kill -9 {pid}",
            )
        time.sleep(_SECONDS_BETWEEN_TRIES)
    os.close(lock)


def read_hosts_again() -> FarmStatus:
    """Make the farm read again which hosts have joined."""
    return status_from(ask(Request("hosts")))


def note_lease(port: int, offer: str, owner: str, purpose: str, seconds: float) -> None:
    """Record who uses the device behind a port, for as long as the session may last. The tracker's
    offer tells the session from the previous one."""
    ask(Request("lease", "", owner, purpose, seconds, port, offer))


def fair_priority(owner: str) -> int:
    """Return the priority for a request to the tracker: higher for owners of fewer devices."""
    return int(ask(Request("priority", owner=owner))["priority"])


def listen() -> socket.socket:
    """Listen as the keeper. The caller holds the farm's lock.

    The socket replaces that of a killed farm in one step: clients that wait for the restart take
    a missing socket for an orderly end.
    """
    path = socket_path()
    new = path.with_name("new.sock")
    with storage_errors("listen for edgekit farm", path):
        new.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(new) as name:
                listener.bind(name)
            new.chmod(0o600)
            listener.listen(_BACKLOG)
            new.replace(path)
        except BaseException:
            listener.close()
            raise
    return listener


def refusal(error: EdgekitError) -> dict[str, object]:
    return {"error": error.message, "hint": error.hint or ""}


def read_lines(descriptor: int, silence: float | None = None) -> Iterator[bytes]:
    """Yield lines until the end, a silence of so many seconds, or a line that is too long."""
    rest = b""
    while len(rest) <= LONGEST_LINE:
        ready, _, _ = select.select([descriptor], [], [], silence)
        block = os.read(descriptor, _BLOCK) if ready else b""
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
