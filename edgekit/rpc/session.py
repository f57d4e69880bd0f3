"""Sessions on devices that a tracker hands out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import did_you_mean
from edgekit.rpc.protocol import Assigned, TrackerAddress, TrackerClient
from edgekit.rpc.tracker import find_tracker
from edgekit.rpc.versions import REMOTE_FFI_VERSION, REMOTE_TVM_VERSION, check_versions

DEFAULT_SESSION_SECONDS = 60.0
DEFAULT_WAIT_SECONDS = 60.0
_SEE_STATUS = "`edgekit rpc status` shows whether the device is registered"


class SessionTimedOut(DeviceError):
    """The device has ended the session, whose time is over."""


class UnknownKey(DeviceError):
    """No device is registered under that key: not yet, or not any more."""


class SessionLost(DeviceError):
    """The session's process, its device, or the connection to it is gone."""


@dataclass(frozen=True)
class Claim:
    """A request's place in the tracker's queue, and what happens once a device is assigned."""

    priority: int = 1
    taken: Callable[[Assigned], None] = lambda assigned: None
    """A function that is told which device it is."""


@dataclass(frozen=True)
class _Request:
    key: str
    timeout: float
    wait: float
    claim: Claim


@contextmanager
def open_session(
    key: str,
    timeout: float = DEFAULT_SESSION_SECONDS,
    *,
    tracker: TrackerAddress | None = None,
    wait: float = DEFAULT_WAIT_SECONDS,
    claim: Claim = Claim(),
    events: Events = SILENT,
) -> Iterator[Any]:
    """Open TVM's own RPC session on a device with that key, and close it after the block.

    The device ends the session after `timeout` seconds; `wait` limits the wait for a free device.
    `tracker` defaults to the one that runs on this host. TVM's errors for a session that is over
    become SessionTimedOut or SessionLost.
    """
    load_tvm()
    address = find_tracker(tracker)
    session = _first_that_accepts(_Request(key, timeout, wait, claim), address, events)
    try:
        with _explained(session, key, timeout):
            _check_versions(session, key, events)
            yield session
    finally:
        _close(session)


def _first_that_accepts(request: _Request, address: TrackerAddress, events: Events) -> Any:
    """Open a session. A device may be lost while the tracker hands it out: ask for the next one."""
    with TrackerClient(address) as client:
        _check_key(request.key, client, address, events)
        deadline = time.monotonic() + request.wait
        left = request.wait
        while True:
            assigned = client.request(request.key, request.claim.priority, left)
            try:
                session = _connect(assigned, request.key, request.timeout)
            except SessionLost as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                events.note(error.message)
            else:
                request.claim.taken(assigned)
                return session


def _check_key(key: str, client: TrackerClient, address: TrackerAddress, events: Events) -> None:
    """Check that a device has the key; TVM's own request would wait for ever for it."""
    statuses = {status.key: status for status in client.status() if status.devices}
    if key not in statuses:
        raise UnknownKey(
            f"no device is registered with the key {key} at {address}",
            hint=did_you_mean(key, statuses, "`edgekit rpc serve --device NAME` registers one"),
        )
    if not statuses[key].free:
        events.warn(f"every device with the key {key} is busy: waiting")


def _connect(assigned: Assigned, key: str, timeout: float) -> Any:
    from tvm import rpc
    from tvm.error import InternalError, RPCError

    try:
        return rpc.connect(
            assigned.host, assigned.port, assigned.match_key, session_timeout=timeout
        )
    except (RPCError, InternalError) as error:
        raise SessionLost(
            f"the device with the key {key} did not accept the session",
            hint=f"try again; {_SEE_STATUS}",
        ) from error


def _check_versions(session: Any, key: str, events: Events) -> None:
    tvm, ffi = (_ask(session, name) for name in (REMOTE_TVM_VERSION, REMOTE_FFI_VERSION))
    if tvm is None:
        events.warn(f"{key} is not served by edgekit and does not say which TVM it runs")
        return
    check_versions(tvm, ffi or "unknown", key)


def _ask(session: Any, name: str) -> str | None:
    """Call a function of the session; None if it has no such function."""
    try:
        function = session.get_function(name)
    except AttributeError:
        return None
    return str(function())


def _close(session: Any) -> None:
    """Close the session now, rather than when its last tensor or function is collected."""
    from tvm.error import InternalError, RPCError

    with suppress(RPCError, InternalError):  # the session is over already, and the block has raised
        session.get_function("CloseRPCConnection")()


@contextmanager
def _explained(session: Any, key: str, timeout: float) -> Iterator[None]:
    from tvm.error import InternalError, RPCError, RPCSessionTimeoutError

    try:
        try:
            yield
        except (RPCError, InternalError) as error:
            # TVM has many errors for the end of a session; errors of the model pass unchanged.
            if isinstance(error, RPCSessionTimeoutError) or _still_answers(session):
                raise
            raise SessionLost(
                f"the session on {key} was lost: its process, the device or the connection is gone",
                hint=f"leave out what crashes it; {_SEE_STATUS}",
            ) from error
    except RPCSessionTimeoutError as error:
        raise SessionTimedOut(
            f"the session on {key} exceeded its {timeout:g} s and was ended",
            hint="raise the timeout, or find out what takes so long; the device is free again",
        ) from error


def _still_answers(session: Any) -> bool:
    """Say whether the session answers; RPCSessionTimeoutError if its time is over."""
    from tvm.error import InternalError, RPCError, RPCSessionTimeoutError

    try:
        session.get_function(REMOTE_TVM_VERSION)
    except AttributeError:
        return True  # it answered that it has no such function
    except RPCSessionTimeoutError:
        raise
    except (RPCError, InternalError):
        return False
    return True
