"""The little of a tracker's protocol that a client needs, spoken without TVM.

Both sides say a magic number, then each message is its size and JSON. What a tracker answers is
not trusted: something else may listen on its port.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.json_reader import read_json
from edgekit.base.own_listener import LOOPBACK as LOOPBACK
from edgekit.base.own_listener import ROOT
from edgekit.base.peer_owner import OwnerUnknown, peer_uid
from edgekit.profiles.reader import show

DEFAULT_PORT = 9190

# tvm/rpc/base.py
_MAGIC = 0x2F271
_SUCCESS, _PUT, _REQUEST, _UPDATE_INFO, _SUMMARY, _PENDING_KEYS = 0, 3, 4, 5, 6, 7

_SECONDS_TO_ANSWER = 10.0
_LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class TrackerAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class KeyStatus:
    """The devices that are registered under one key."""

    key: str
    free: int
    busy: int
    pending: int
    """Requests that wait for one of them."""

    @property
    def devices(self) -> int:
        return self.free + self.busy


@dataclass(frozen=True)
class Assigned:
    """A device that the tracker gave to us, and what it wants to hear from us."""

    host: str
    port: int
    match_key: str


class TrackerGone(DeviceError):
    """Nobody answers at the tracker's address, or somebody who is no tracker."""


class NoneFree(DeviceError):
    """No device was free in time."""


def parse_tracker(text: str) -> TrackerAddress:
    """`HOST:PORT` as a person writes it. Only this machine's: nothing of TVM's RPC asks who is
    calling, and it runs whatever it is sent."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(
            f"{show(text)} is not the address of a tracker",
            hint=f"write HOST:PORT, like {LOOPBACK}:{DEFAULT_PORT}",
        )
    if host not in (LOOPBACK, "localhost"):
        raise UsageError(
            f"the tracker {show(text)} is not on this machine's loopback",
            hint="TVM's RPC knows no passwords; bring the tracker here through SSH: "
            f"ssh -L {port}:{LOOPBACK}:{port} {host or 'HOST'}, then --tracker {LOOPBACK}:{port}",
        )
    return TrackerAddress(LOOPBACK, int(port))


class TrackerClient:
    """A connection to a tracker. Use as a context manager."""

    def __init__(self, address: TrackerAddress) -> None:
        self._address = address
        try:
            self._socket = socket.create_connection(
                (address.host, address.port), timeout=_SECONDS_TO_ANSWER
            )
        except OSError as error:
            raise self._gone("nobody listens there") from error
        try:
            self._send(struct.pack("<i", _MAGIC))
            if self._receive(4) != struct.pack("<i", _MAGIC):
                raise self._gone("what answers there is not TVM's RPC tracker")
            self._check_owner()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> TrackerClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def status(self) -> tuple[KeyStatus, ...]:
        """Every key that has devices, or for which somebody waits."""
        answer = self._ask([_SUMMARY])
        try:
            code, summary = answer
            if code != _SUCCESS:
                raise ValueError("refused")
            return parse_summary(summary)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._gone("its answer makes no sense") from error

    def request(self, key: str, priority: int, wait: float) -> Assigned:
        """A device of our own; NoneFree where none was free within `wait` seconds.

        A request that is given up ends with this connection: the tracker gives nothing to it.
        """
        self._say([_REQUEST, key, "", priority])
        self._socket.settimeout(wait)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError as error:
            raise NoneFree(
                f"no device with the key {key} became free within {wait:.3g} s",
                hint="`edgekit rpc status` shows who is busy; wait longer, or serve another device",
            ) from error
        except OSError as error:
            raise self._gone("it hung up") from error
        self._socket.settimeout(_SECONDS_TO_ANSWER)
        answer = self._hear()
        try:
            code, (host, port, match_key) = answer
            if code != _SUCCESS:
                raise ValueError("refused")
            return Assigned(str(host), int(port), str(match_key))
        except (ValueError, TypeError) as error:
            raise self._gone("its answer makes no sense") from error

    def register(self, key: str, port: int) -> None:
        """From now on this connection is that of a device; it is gone when this one closes."""
        self._expect_success([_UPDATE_INFO, {"key": f"server:{key}", "addr": [LOOPBACK, port]}])

    def offer(self, key: str, port: int) -> str:
        """Let somebody have the device once; what they will present when they connect to it."""
        match_key = f"{key}:{secrets.token_hex(12)}"
        self._expect_success([_PUT, key, [port, match_key], LOOPBACK])
        return match_key

    def pending_offers(self) -> tuple[str, ...]:
        """Those of this connection that nobody was given yet."""
        answer = self._ask([_PENDING_KEYS])
        if not isinstance(answer, list):
            raise self._gone("its answer makes no sense")
        return tuple(str(item) for item in answer)

    def _check_owner(self) -> None:
        """Another user may have taken the port first; what their tracker hands out is theirs. The
        kernel knows whose the other end is once it has been accepted."""
        try:
            owner = peer_uid(self._socket)
        except OwnerUnknown as error:
            raise self._gone(f"whose it is can't be told: {error}") from error
        if owner not in (ROOT, os.geteuid()):
            raise self._gone(f"what listens there belongs to user {owner}")

    def _expect_success(self, message: object) -> None:
        if self._ask(message) != _SUCCESS:
            raise self._gone("its answer makes no sense")

    def _ask(self, message: object) -> Any:
        self._say(message)
        return self._hear()

    def _say(self, message: object) -> None:
        data = json.dumps(message).encode()
        self._send(struct.pack("<i", len(data)) + data)

    def _hear(self) -> Any:
        (size,) = struct.unpack("<i", self._receive(4))
        if not 0 < size <= _LONGEST_ANSWER:
            raise self._gone("its answer makes no sense")
        try:
            return read_json(self._receive(size))
        except (ValueError, RecursionError) as error:
            raise self._gone("its answer makes no sense") from error

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._gone("it hung up") from error

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                block = self._socket.recv(size - len(data))
            except TimeoutError as error:
                raise self._gone("it does not answer") from error
            except OSError as error:
                raise self._gone("it hung up") from error
            if not block:
                raise self._gone("it hung up")
            data += block
        return bytes(data)

    def _gone(self, why: str) -> TrackerGone:
        return TrackerGone(
            f"there is no tracker at {self._address}: {why}",
            hint="`edgekit rpc tracker` starts one",
        )


def parse_summary(summary: Mapping[str, Any]) -> tuple[KeyStatus, ...]:
    """ValueError, TypeError, KeyError or AttributeError where it is not what a tracker says."""
    registered: dict[str, int] = {}
    for server in summary["server_info"]:
        key = str(server["key"]).removeprefix("server:")
        registered[key] = registered.get(key, 0) + 1
    queues = {
        str(key): (int(queue["free"]), int(queue["pending"]))
        for key, queue in summary["queue_info"].items()
    }
    statuses = []
    for key in sorted({*registered, *queues}):
        # A request leaves its key behind at the tracker, devices or not.
        free, pending = queues.get(key, (0, 0))
        devices = registered.get(key, 0)
        if devices or pending:
            free = min(free, devices)
            statuses.append(KeyStatus(key, free, devices - free, pending))
    return tuple(statuses)
