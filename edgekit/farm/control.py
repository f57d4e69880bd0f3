"""How to speak with the keeper: one line of JSON there, one back, over a socket in the user's own
data folder, which nobody else may enter."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from edgekit.errors import DeviceError, EdgekitError, UsageError
from edgekit.farm.status import FarmStatus, status_from
from edgekit.files import storage_errors
from edgekit.paths import data_dir

_SECONDS_TO_ANSWER = 20.0
LONGEST_LINE = 4 << 20
_LONGEST_SOCKET_PATH = 100
"""Of the 108 bytes that Linux has for one."""


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


def note_lease(port: int, owner: str, purpose: str, seconds: float) -> None:
    """Say who has the device behind a port, for as long as the session may last."""
    ask({"do": "lease", "port": port, "owner": owner, "purpose": purpose, "seconds": seconds})


def fair_priority(owner: str) -> int:
    """What to ask the tracker with: the fewer devices somebody has, the sooner they get one."""
    return int(ask({"do": "priority", "owner": owner})["priority"])


def ask(request: Mapping[str, object]) -> Mapping[str, Any]:
    """One request; FarmDown where nobody is there, what the keeper refuses as it refuses it."""
    try:
        with closing(_connected()) as stream:
            stream.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_line(stream))
    except (FileNotFoundError, ConnectionError) as error:
        raise FarmDown(
            "no farm is up on this machine", hint="`edgekit farm up` starts one"
        ) from error
    except (OSError, ValueError) as error:
        raise DeviceError(
            f"the farm does not answer: {error}",
            hint="edgekit farm down ends it; kill its process if that does not help",
        ) from error
    if not isinstance(answer, dict):
        raise DeviceError("the farm's answer makes no sense", hint="edgekit farm down, then up")
    if "error" in answer:
        raise UsageError(str(answer["error"]), hint=str(answer.get("hint", "")) or None)
    return answer


def bound() -> socket.socket:
    """The keeper's end. Whoever calls this holds the lock."""
    path = socket_path()
    with storage_errors("listen for edgekit farm", path):
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _reachable(path) as name:
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(32)
        except BaseException:
            listener.close()
            raise
    return listener


def _connected() -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(_SECONDS_TO_ANSWER)
    try:
        with _reachable(socket_path()) as name:
            stream.connect(name)
    except BaseException:
        stream.close()
        raise
    return stream


class _reachable:  # noqa: N801 - used like a function
    """A name that fits into a socket's address, however deep the folder is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: int | None = None

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) < _LONGEST_SOCKET_PATH:
            return str(self._path)
        self._folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            os.close(self._folder)


def _line(stream: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        block = stream.recv(1 << 16)
        if not block:
            raise ConnectionResetError("it hung up")
        data += block
        if len(data) > LONGEST_LINE:
            raise ValueError("it says too much")
    return bytes(data)


def refused(error: EdgekitError) -> dict[str, object]:
    return {"error": error.message, "hint": error.hint or ""}
