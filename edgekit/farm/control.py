"""How to speak with the keeper: one line of JSON there, one back, over a socket in the user's own
data folder, which nobody else may enter."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgekit.base.errors import DeviceError, EdgekitError, UsageError
from edgekit.base.files import storage_errors
from edgekit.base.json_reader import read_json
from edgekit.base.paths import data_dir
from edgekit.base.unix_sockets import reachable as reachable
from edgekit.farm.status import FarmStatus, status_from

_SECONDS_TO_ANSWER = 20.0
LONGEST_LINE = 4 << 20
_MOST_WAITING = 1024
"""Clients that the keeper has not got round to; more of them try again."""
_SECONDS_BETWEEN_TRIES = 0.05


class FarmDown(DeviceError):
    """No farm is up on this machine, for this user."""


def farm_folder() -> Path:
    return data_dir() / "farm"


def socket_path() -> Path:
    return farm_folder() / "control.sock"


def lock_path() -> Path:
    return farm_folder() / "lock"


def farm_status() -> FarmStatus:
    return status_from(ask({"do": "status"}))


def drain(name: str) -> FarmStatus:
    """Nobody gets the device any more; the session that runs on it ends first."""
    return status_from(ask({"do": "drain", "device": name}))


def resume(name: str) -> FarmStatus:
    return status_from(ask({"do": "resume", "device": name}))


def down() -> FarmStatus:
    """As it was; it has ended when this returns."""
    return status_from(ask({"do": "down"}))


def read_hosts_again() -> FarmStatus:
    """Some have joined, or left."""
    return status_from(ask({"do": "hosts"}))


def note_lease(port: int, offer: str, owner: str, purpose: str, seconds: float) -> None:
    """Say who has the device behind a port, for as long as the session may last. The offer is what
    the tracker gave out: it tells the session from the one before it."""
    lease = {"owner": owner, "purpose": purpose, "seconds": seconds}
    ask({"do": "lease", "port": port, "offer": offer, **lease})


def fair_priority(owner: str) -> int:
    """What to ask the tracker with: the fewer devices somebody has, the sooner they get one."""
    return int(ask({"do": "priority", "owner": owner})["priority"])


def ask(request: Mapping[str, object]) -> Mapping[str, Any]:
    """One request; FarmDown where nobody is there, what the keeper refuses as it refuses it."""
    with Conversation(request) as conversation:
        try:
            answer = conversation.next_line(_SECONDS_TO_ANSWER)
        except TimeoutError as error:
            raise _does_not_answer(f"nothing came for {_SECONDS_TO_ANSWER:g} s") from error
    if answer is None:
        raise _does_not_answer("it hung up")
    raise_refusal(answer)
    return answer


def raise_refusal(answer: Mapping[str, Any]) -> None:
    if "error" in answer:
        raise UsageError(str(answer["error"]), hint=str(answer.get("hint", "")) or None)


class Conversation:
    """A request, and whatever the keeper says to it until it hangs up, or we do."""

    def __init__(self, request: Mapping[str, object]) -> None:
        try:
            self._stream = _connected()
        except (FileNotFoundError, ConnectionError) as error:
            raise FarmDown(
                "no farm is up on this machine", hint="`edgekit farm up` starts one"
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
        """None where it hung up; TimeoutError where a timeout was given and is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while b"\n" not in self._rest:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
                self._stream.settimeout(left)
                block = self._stream.recv(1 << 16)
                if not block:
                    return None
                self._rest += block
                if len(self._rest) > LONGEST_LINE:
                    raise ValueError("it says too much")
            line, _, self._rest = self._rest.partition(b"\n")
            answer = read_json(line)
        except TimeoutError:
            raise
        except ConnectionError:
            return None
        except (OSError, ValueError) as error:
            raise _does_not_answer(str(error)) from error
        if not isinstance(answer, dict):
            raise DeviceError("the farm's answer makes no sense", hint="edgekit farm down, then up")
        return answer

    def close(self) -> None:
        """From any thread."""
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
        hint="edgekit farm down ends it; kill its process if that does not help",
    )


def bound() -> socket.socket:
    """The keeper's end. Whoever calls this holds the lock."""
    path = socket_path()
    with storage_errors("listen for edgekit farm", path):
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(path) as name:
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(_MOST_WAITING)
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
        except BlockingIOError:  # many want to speak with it
            stream.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except BaseException:
            stream.close()
            raise
        else:
            return stream


def refused(error: EdgekitError) -> dict[str, object]:
    return {"error": error.message, "hint": error.hint or ""}


def this_user() -> str:
    """How leases name whoever asks."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}:{os.getpid()}"
