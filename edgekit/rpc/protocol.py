"""A client of TVM's tracker that does not need TVM.

Both sides send a magic number; then each message is its size and JSON. Answers are not trusted:
another program may listen on the tracker's port.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.base.decode import Count, decode
from edgekit.base.errors import DeviceError, UsageError
from edgekit.base.json_reader import read_json
from edgekit.base.options import option
from edgekit.base.own_listener import LOOPBACK as LOOPBACK
from edgekit.base.own_listener import ROOT
from edgekit.base.peer_owner import OwnerUnknown, peer_uid
from edgekit.base.wording import duration
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
    """The number of requests that wait for a device."""

    @property
    def devices(self) -> int:
        return self.free + self.busy


@dataclass(frozen=True)
class Assigned:
    """A device that the tracker assigned, and the key to connect to it with."""

    host: str
    port: int
    match_key: str


class TrackerGone(DeviceError):
    """No tracker answers at the address."""


class NoneFree(DeviceError):
    """No device was free in time."""


def parse_tracker(text: str) -> TrackerAddress:
    """Parse `HOST:PORT`. Only loopback is accepted: TVM's RPC does not check who is calling, and
    runs whatever it is sent."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(
            f"{show(text)} is not the address of a tracker",
            hint=f"write HOST:PORT, like {LOOPBACK}:{DEFAULT_PORT}",
        )
    if host not in (LOOPBACK, "localhost"):
        raise UsageError(
            f"the tracker {show(text)} is not on this host's loopback",
            hint="TVM's RPC has no passwords; forward the tracker through SSH: "
            f"ssh -L {port}:{LOOPBACK}:{port} {host or 'HOST'}, then {option('tracker')} "
            f"{LOOPBACK}:{port}",
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
            raise self._gone("nothing listens on the port") from error
        try:
            self._send(struct.pack("<i", _MAGIC))
            if self._receive(4) != struct.pack("<i", _MAGIC):
                raise self._gone("what listens on the port is not TVM's RPC tracker")
            self._check_owner()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> TrackerClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def status(self) -> tuple[KeyStatus, ...]:
        """Return every key that has devices or waiting requests."""
        answer = self._ask([_SUMMARY])
        try:
            code, summary = answer
            if code != _SUCCESS:
                raise ValueError("it refuses the request")
            return parse_summary(summary)
        except (ValueError, TypeError) as error:
            raise self._gone(f"its answer is invalid: {error}") from error

    def request(self, key: str, priority: int, wait: float) -> Assigned:
        """Wait for a device; NoneFree if none is free within `wait` seconds.

        A request that is given up ends with this connection.
        """
        self._send_message([_REQUEST, key, "", priority])
        self._socket.settimeout(wait)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError as error:
            raise NoneFree(
                f"no device with the key {key} became free within {duration(wait)}",
                hint="wait longer, or serve another device; `edgekit rpc status` shows all",
            ) from error
        except OSError as error:
            raise self._gone("it hung up") from error
        self._socket.settimeout(_SECONDS_TO_ANSWER)
        answer = self._receive_message()
        try:
            code, (host, port, match_key) = answer
            if code != _SUCCESS:
                raise ValueError("refused")
            return Assigned(str(host), int(port), str(match_key))
        except (ValueError, TypeError) as error:
            raise self._gone("its answer is invalid") from error

    def register(self, key: str, port: int) -> None:
        """Register a device, until this connection closes."""
        self._expect_success([_UPDATE_INFO, {"key": f"server:{key}", "addr": [LOOPBACK, port]}])

    def offer(self, key: str, port: int) -> str:
        """Offer the device for one session, and return the key that its client will present."""
        match_key = f"{key}:{secrets.token_hex(12)}"
        self._expect_success([_PUT, key, [port, match_key], LOOPBACK])
        return match_key

    def pending_offers(self) -> tuple[str, ...]:
        """Return the offers of this connection that are still open."""
        answer = self._ask([_PENDING_KEYS])
        if not isinstance(answer, list):
            raise self._gone("its answer is invalid")
        return tuple(str(item) for item in answer)

    def _check_owner(self) -> None:
        """Refuse the tracker of another user, who may have taken the port first. The kernel knows
        the owner once the connection is accepted."""
        try:
            owner = peer_uid(self._socket)
        except OwnerUnknown as error:
            raise self._gone(f"its owner is unknown: {error}") from error
        if owner not in (ROOT, os.geteuid()):
            raise self._gone(f"what listens on the port belongs to user {owner}")

    def _expect_success(self, message: object) -> None:
        if self._ask(message) != _SUCCESS:
            raise self._gone("its answer is invalid")

    def _ask(self, message: object) -> Any:
        self._send_message(message)
        return self._receive_message()

    def _send_message(self, message: object) -> None:
        data = json.dumps(message).encode()
        self._send(struct.pack("<i", len(data)) + data)

    def _receive_message(self) -> Any:
        (size,) = struct.unpack("<i", self._receive(4))
        if not 0 < size <= _LONGEST_ANSWER:
            raise self._gone("its answer is invalid")
        try:
            return read_json(self._receive(size))
        except ValueError as error:
            raise self._gone(f"its answer is invalid: {error}") from error

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
            hint="start one with `edgekit rpc tracker`",
        )


@dataclass(frozen=True)
class _Server:
    key: str


@dataclass(frozen=True)
class _Queue:
    free: Count = 0
    pending: Count = 0


@dataclass(frozen=True)
class _Summary:
    server_info: tuple[_Server, ...]
    queue_info: Mapping[str, _Queue]


def parse_summary(document: object) -> tuple[KeyStatus, ...]:
    """Parse a summary; DecodeError if it is invalid."""
    summary = decode(_Summary, document, "the summary", ignore_unknown=True)
    registered = Counter(server.key.removeprefix("server:") for server in summary.server_info)
    statuses = []
    for key in sorted({*registered, *summary.queue_info}):
        # The tracker remembers keys that were requested, even without devices.
        queue, devices = summary.queue_info.get(key, _Queue()), registered[key]
        if devices or queue.pending:
            free = min(queue.free, devices)
            statuses.append(KeyStatus(key, free, devices - free, queue.pending))
    return tuple(statuses)
