"""Requests to the keeper: one line of JSON each way, over a socket in a folder that only its user
may enter."""

from __future__ import annotations

import getpass
import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.files import storage_errors, try_lock
from edgekit.base.json_reader import read_json
from edgekit.base.paths import data_dir
from edgekit.base.unix_sockets import reachable
from edgekit.farm.status import FarmStatus, status_from

LONGEST_LINE = 4 << 20
_BLOCK = 1 << 16
_SECONDS_TO_ANSWER = 20.0
_SECONDS_TO_END = 30.0
_BACKLOG = 1024
"""The number of clients that may wait for the keeper to accept them; others try again."""
_SECONDS_BETWEEN_TRIES = 0.05


class FarmDown(DeviceError):
    """This user has no farm up on this host."""


def farm_folder() -> Path:
    return data_dir() / "farm"


def socket_path() -> Path:
    return farm_folder() / "control.sock"


def lock_path() -> Path:
    return farm_folder() / "lock"


def farm_status() -> FarmStatus:
    return status_from(ask({"do": "status"}))


def drain(name: str) -> FarmStatus:
    """Stop handing out a device; a running session ends first."""
    return status_from(ask({"do": "drain", "device": name}))


def resume(name: str) -> FarmStatus:
    return status_from(ask({"do": "resume", "device": name}))


def down() -> FarmStatus:
    """Tell the farm to end, and return its last status."""
    return status_from(ask({"do": "down"}))


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
    return status_from(ask({"do": "hosts"}))


def note_lease(port: int, offer: str, owner: str, purpose: str, seconds: float) -> None:
    """Record who uses the device behind a port, for as long as the session may last. The tracker's
    offer tells the session from the previous one."""
    lease = {"owner": owner, "purpose": purpose, "seconds": seconds}
    ask({"do": "lease", "port": port, "offer": offer, **lease})


def fair_priority(owner: str) -> int:
    """Return the priority for a request to the tracker: higher for owners of fewer devices."""
    return int(ask({"do": "priority", "owner": owner})["priority"])


def ask(request: Mapping[str, object]) -> Mapping[str, Any]:
    """Send one request; FarmDown if no farm is up, UsageError if the keeper refuses."""
    with Conversation(request) as conversation:
        try:
            answer = conversation.next_line(_SECONDS_TO_ANSWER)
        except TimeoutError as error:
            raise _does_not_answer(f"no answer for {_SECONDS_TO_ANSWER:g} s") from error
    if answer is None:
        raise _does_not_answer("it hung up")
    raise_refusal(answer)
    return answer


def raise_refusal(answer: Mapping[str, Any]) -> None:
    if "error" in answer:
        raise UsageError(str(answer["error"]), hint=str(answer.get("hint", "")) or None)


class Conversation:
    """A request and the answers to it, until either side hangs up."""

    def __init__(self, request: Mapping[str, object]) -> None:
        try:
            self._stream = _connected()
        except (FileNotFoundError, ConnectionError) as error:
            raise FarmDown(
                "no farm is up on this host", hint="start one with `edgekit farm up`"
            ) from error
        except OSError as error:
            raise _does_not_answer(str(error)) from error
        self._rest = bytearray()
        try:
            self._stream.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self._stream.close()
            raise _does_not_answer(str(error)) from error

    def next_line(self, timeout: float | None = None) -> Mapping[str, Any] | None:
        """Return the next answer, None if the keeper hung up; TimeoutError after `timeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while b"\n" not in self._rest:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
                self._stream.settimeout(left)
                block = self._stream.recv(_BLOCK)
                if not block:
                    return None
                self._rest += block
                if len(self._rest) > LONGEST_LINE:
                    raise ValueError("its answer is too long")
            line, _, self._rest = self._rest.partition(b"\n")
            answer = read_json(line)
        except TimeoutError:
            raise
        except ConnectionError:
            return None
        except (OSError, ValueError) as error:
            raise _does_not_answer(str(error)) from error
        if not isinstance(answer, dict):
            raise DeviceError("the farm's answer is invalid", hint="run edgekit farm down, then up")
        return answer

    def close(self) -> None:
        """Hang up; callable from any thread."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self._stream.close()


def _does_not_answer(why: str) -> DeviceError:
    return DeviceError(
        f"the farm does not answer: {why}",
        hint="end it with edgekit farm down, or kill its process",
    )


def listen() -> socket.socket:
    """Listen as the keeper. The caller holds the farm's lock."""
    path = socket_path()
    with storage_errors("listen for edgekit farm", path):
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(path) as name:
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    return listener


def _connected() -> socket.socket:
    deadline = time.monotonic() + _SECONDS_TO_ANSWER
    while True:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.settimeout(_SECONDS_TO_ANSWER)
        try:
            with reachable(socket_path()) as name:
                stream.connect(name)
        except BlockingIOError:  # the backlog is full
            stream.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except BaseException:
            stream.close()
            raise
        else:
            return stream


def refusal(error: EdgekitError) -> dict[str, object]:
    return {"error": error.message, "hint": error.hint or ""}


def this_user() -> str:
    """Name this process as the owner of a lease."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}:{os.getpid()}"


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
