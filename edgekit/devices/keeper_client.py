"""Requests to the keeper of a farm on this host: one line of JSON each way, over a socket in a
folder that only its user may enter."""

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

from edgekit.base.decode import encode
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.json_reader import read_json_object
from edgekit.base.paths import data_dir
from edgekit.base.unix_sockets import reachable
from edgekit.devices.keeper_messages import Request

LONGEST_LINE = 4 << 20
_BLOCK = 1 << 16
_SECONDS_TO_ANSWER = 20.0
_SECONDS_BETWEEN_TRIES = 0.05
_END = "end it with edgekit farm down, or kill its process"
_DOWN, _START = "no farm is up on this host", "start one with `edgekit farm up`"


class FarmDown(DeviceError):
    """This user has no farm up on this host."""


class FarmDied(FarmDown):
    """The farm left its socket behind: it was killed, and may be started again."""


class FarmSilent(DeviceError):
    """The farm has not answered in time: it hangs, or its host is busy."""


def farm_folder() -> Path:
    return data_dir() / "farm"


def socket_path() -> Path:
    return farm_folder() / "control.sock"


def ask(request: Request) -> Mapping[str, Any]:
    """Send one request; FarmDown if no farm is up, UsageError if the keeper refuses."""
    with Conversation(encode(request)) as conversation:
        try:
            answer = conversation.next_line(_SECONDS_TO_ANSWER)
        except TimeoutError as error:
            raise FarmSilent(
                f"the farm does not answer: no answer for {_SECONDS_TO_ANSWER:g} s", hint=_END
            ) from error
    if answer is None:
        raise _hung_up()
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
        except FileNotFoundError as error:
            raise FarmDown(_DOWN, hint=_START) from error
        except ConnectionError as error:
            raise FarmDied(_DOWN, hint=_START) from error
        except PermissionError as error:
            raise DeviceError(
                f"the farm's socket {socket_path()} may not be opened by this user",
                hint="each user has a farm; the folder belongs to the user who ran edgekit farm up",
            ) from error
        except OSError as error:
            raise _does_not_answer(str(error)) from error
        self._rest = bytearray()
        try:
            self._stream.sendall(json.dumps(request).encode() + b"\n")
        except ConnectionError as error:
            self._stream.close()
            raise _hung_up() from error
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
            return read_json_object(line)
        except TimeoutError:
            raise
        except ConnectionError:
            return None
        except (OSError, ValueError) as error:
            raise _does_not_answer(str(error)) from error

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
        hint=_END,
    )


def _hung_up() -> FarmDied:
    return FarmDied("the farm ended before it answered", hint=_START)


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


def this_user() -> str:
    """Name this process as the owner of a lease."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}:{os.getpid()}"
