"""A device of a joined host that this farm offers: an entry in the tracker, and a port that leads
to the device.

A client that the tracker sends to the port waits for a device of the remote tracker, so that two
trackers never promise one device.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from edgekit.base.errors import DeviceError
from edgekit.base.own_listener import listen_on_loopback
from edgekit.devices.linux.connection import Connection
from edgekit.devices.linux.forwarding import join
from edgekit.rpc.protocol import LOOPBACK, Assigned, TrackerAddress, TrackerClient

# tvm/rpc/base.py
_MAGIC = 0xFF271
_MISMATCH = _MAGIC + 2
_LONGEST_KEY = 4096
_SECONDS_TO_GREET = 5.0
_SECONDS_FOR_A_DEVICE = 60.0
_SECONDS_BETWEEN_LOOKS = 1.0
_LOOKS_UNTIL_RENEWED = 6
"""The number of looks after which an offer is renewed whose client did not connect."""
_HIGH_PRIORITY = 1000
"""The priority at the remote tracker of a client that has waited at this one."""


@dataclass(frozen=True)
class Session:
    """A forwarded session, as the remote tracker knows it."""

    port: int
    offer: str


class ForwardedDevice:
    def __init__(
        self,
        key: str,
        tracker: TrackerAddress,
        remote_tracker: Callable[[], TrackerAddress],
        connection: Connection,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.key = key
        self._tracker = tracker
        self._remote_tracker = remote_tracker
        self._connection = connection
        self._listener = listen_on_loopback(0, refused)
        self.port: int = self._listener.getsockname()[1]
        self._is_free = threading.Event()
        self._in_use = threading.Event()
        self._changed = threading.Event()
        self._over = threading.Event()
        self._offer = ""
        self._offering = threading.Lock()
        self._sessions: dict[str, Session] = {}
        for work in (partial(self._listener.serve_each, self._serve), self._keep_offered):
            threading.Thread(target=work, daemon=True).start()

    def device_is_free(self, is_free: bool) -> None:
        if is_free == self._is_free.is_set():
            return
        if is_free:
            self._is_free.set()
        else:
            self._is_free.clear()
        self._changed.set()

    def session_of(self, offer: str) -> Session | None:
        """Return the remote session that a client's offer led to."""
        return self._sessions.get(offer)

    def close(self) -> None:
        self._over.set()
        self._changed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _keep_offered(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                with TrackerClient(self._tracker) as tracker:
                    tracker.register(self.key, self.port)
                    self._stay_registered(tracker)
            except DeviceError:
                continue  # the tracker is being started again

    def _stay_registered(self, tracker: TrackerClient) -> None:
        """Offer the device until an offer must be withdrawn, which takes a hang-up."""
        offer, unused = "", 0
        while not self._over.is_set():
            is_available = self._is_free.is_set() and not self._in_use.is_set()
            if offer and not is_available:
                if offer in tracker.pending_offers():
                    self._change_offer("")
                    return
                offer = ""
            elif offer:
                unused = 0 if offer in tracker.pending_offers() else unused + 1
            if is_available and (not offer or unused > _LOOKS_UNTIL_RENEWED):
                with self._offering:
                    offer, unused = tracker.offer(self.key, self.port), 0
                    self._offer = offer
            self._changed.wait(_SECONDS_BETWEEN_LOOKS)
            self._changed.clear()

    def _change_offer(self, offer: str) -> None:
        with self._offering:
            self._offer = offer

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                client.settimeout(_SECONDS_TO_GREET)
                words = _greeting(client)
                offer, rest = _split(words)
                with self._offering:
                    is_offered = bool(offer) and offer == self._offer
                    if is_offered:
                        self._offer = ""
                if not is_offered:
                    client.sendall(struct.pack("<i", _MISMATCH))
                    return
                self._forward(client, offer, rest)
            except (OSError, ValueError, DeviceError):
                return  # a closed connection is the only answer that TVM understands

    def _forward(self, client: socket.socket, offer: str, rest: str) -> None:
        self._in_use.set()
        try:
            given = self._remote_device()
            self._sessions[offer] = Session(given.port, given.match_key)
            channel = self._connection.open_channel("direct-tcpip", (LOOPBACK, given.port))
            words = f"client:{given.match_key}{rest}".encode()
            channel.sendall(struct.pack("<ii", _MAGIC, len(words)) + words)
            client.settimeout(None)
            join(client, channel)
        finally:
            self._sessions.pop(offer, None)
            # The host's last news of the device is out of date.
            self._is_free.clear()
            self._in_use.clear()

    def _remote_device(self) -> Assigned:
        with TrackerClient(self._remote_tracker()) as tracker:
            return tracker.request(self.key, _HIGH_PRIORITY, _SECONDS_FOR_A_DEVICE)


def _greeting(client: socket.socket) -> str:
    magic, size = struct.unpack("<ii", _exactly(client, 8))
    if magic != _MAGIC or not 0 <= size <= _LONGEST_KEY:
        raise ValueError("not TVM's RPC")
    return _exactly(client, size).decode()


def _split(words: str) -> tuple[str, str]:
    """Split a greeting into the offer and its options, which begin with a space."""
    match = re.fullmatch(r"client:([^ ]*)( .*)?", words)
    if match is None:
        raise ValueError("not a client")
    return match[1], match[2] or ""


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        block = client.recv(size - len(data))
        if not block:
            raise ValueError("it hung up")
        data += block
    return data
