"""Sessions on devices that a tracker hands out: for tuning, and for whoever measures over RPC."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
_SEE_STATUS = "`edgekit rpc status` shows whether the device is there"


class SessionTimedOut(DeviceError):
    """The time that the session was given is over; the device has ended it."""


class UnknownKey(DeviceError):
    """Nobody registered a device under that key: not yet, or not any more."""


class SessionLost(DeviceError):
    """The session's process, its device, or the connection to it is gone."""


@contextmanager
def open_session(
    key: str,
    timeout: float = DEFAULT_SESSION_SECONDS,
    *,
    tracker: TrackerAddress | None = None,
    wait: float = DEFAULT_WAIT_SECONDS,
    priority: int = 1,
    taken: Callable[[Assigned], None] = lambda assigned: None,
    events: Events = SILENT,
) -> Iterator[Any]:
    """TVM's own RPC session on a device with that key, which is free again after the block.

    The device ends the session after `timeout` seconds; `wait` is for how long to wait while
    every such device is busy; `taken` hears which one it is. Without `tracker` it is the one that
    runs on this machine. What TVM raises in the block because the session is over becomes
    SessionTimedOut or SessionLost.
    """
    load_tvm()
    address = find_tracker(tracker)
    session = _first_that_takes_it(key, timeout, address, wait, priority, taken, events)
    try:
        with _explained(session, key, timeout):
            _check_versions(session, key, events)
            yield session
    finally:
        _close(session)


def _first_that_takes_it(
    key: str,
    timeout: float,
    address: TrackerAddress,
    wait: float,
    priority: int,
    taken: Callable[[Assigned], None],
    events: Events,
) -> Any:
    """A device may be lost just while the tracker hands it out: then the next one is asked for."""
    with TrackerClient(address) as client:
        _check_key(key, client, address, events)
        deadline = time.monotonic() + wait
        left = wait
        while True:
            assigned = client.request(key, priority, left)
            try:
                session = _connect(assigned, key, timeout)
            except SessionLost as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                events.note(error.message)
            else:
                taken(assigned)
                return session


def _check_key(key: str, client: TrackerClient, address: TrackerAddress, events: Events) -> None:
    """TVM's own request waits for ever for a key that nobody has."""
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
            f"the device with the key {key} did not take the session",
            hint=f"try again: the tracker hands out what was there; {_SEE_STATUS}",
        ) from error


def _check_versions(session: Any, key: str, events: Events) -> None:
    tvm, ffi = (_ask(session, name) for name in (REMOTE_TVM_VERSION, REMOTE_FFI_VERSION))
    if tvm is None:
        events.warn(f"{key} is not served by edgekit and does not say which TVM it runs")
        return
    check_versions(tvm, ffi or "unknown", key)


def _ask(session: Any, name: str) -> str | None:
    """What a function over there says; None where there is none of that name."""
    try:
        function = session.get_function(name)
    except AttributeError:
        return None
    return str(function())


def _close(session: Any) -> None:
    """At once, and not only when the last tensor or function of it is forgotten."""
    from tvm.error import InternalError, RPCError

    with suppress(RPCError, InternalError):  # over already; the block was told
        session.get_function("CloseRPCConnection")()


@contextmanager
def _explained(session: Any, key: str, timeout: float) -> Iterator[None]:
    from tvm.error import InternalError, RPCError, RPCSessionTimeoutError

    try:
        try:
            yield
        except (RPCError, InternalError) as error:
            # TVM words the end of a session in many ways; an error of a model is none of them.
            if isinstance(error, RPCSessionTimeoutError) or _still_answers(session):
                raise
            raise SessionLost(
                f"the session on {key} was lost: its process, the device or the connection is gone",
                hint=f"{_SEE_STATUS}; what crashes it should be left out",
            ) from error
    except RPCSessionTimeoutError as error:
        raise SessionTimedOut(
            f"the session on {key} ran out of its {timeout:g} s and was ended",
            hint="give it longer, or find out what takes so long; the device is free again",
        ) from error


def _still_answers(session: Any) -> bool:
    """RPCSessionTimeoutError where its time is over."""
    from tvm.error import InternalError, RPCError, RPCSessionTimeoutError

    try:
        session.get_function(REMOTE_TVM_VERSION)
    except AttributeError:
        return True  # it says that it has no such function
    except RPCSessionTimeoutError:
        raise
    except (RPCError, InternalError):
        return False
    return True
