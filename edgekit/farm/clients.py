"""Clients of the keeper: one request each, and answers until either side hangs up."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from edgekit.base.decode import decode_json
from edgekit.base.errors import EdgekitError
from edgekit.devices.keeper_client import LONGEST_LINE
from edgekit.devices.keeper_messages import Request
from edgekit.farm.control import refusal

_SECONDS_TO_SEND = 5.0


class Client:
    """A client's connection. `on_hangup` is called if the client hangs up before the answer."""

    def __init__(
        self,
        stream: socket.socket,
        selector: selectors.BaseSelector,
        answer: Callable[[Client, Request], Mapping[str, object] | None],
    ) -> None:
        self.on_hangup: Callable[[], None] = lambda: None
        self._stream = stream
        self._selector = selector
        self._answer = answer
        self._received = bytearray()
        self._has_asked = False
        self._is_open = True
        stream.setblocking(False)
        selector.register(stream, selectors.EVENT_READ, self._read)

    def send(self, document: Mapping[str, object]) -> None:
        if not self._is_open:
            return
        self._stream.settimeout(_SECONDS_TO_SEND)
        with suppress(OSError):  # the next read sees that it has hung up
            self._stream.sendall(json.dumps(document).encode() + b"\n")
        self._stream.setblocking(False)

    def end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._selector.unregister(self._stream)
            self._stream.close()

    def _read(self) -> None:
        try:
            block = self._stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block and self._has_asked:
            self.on_hangup()
            self.end()
            return
        if self._has_asked:
            return  # a client makes one request
        self._received += block
        if b"\n" in self._received:
            self._has_asked = True
            self._process(bytes(self._received.partition(b"\n")[0]))
        elif not block or len(self._received) > LONGEST_LINE:
            self.end()

    def _process(self, line: bytes) -> None:
        try:
            answer = self._answer(self, decode_json(Request, line, ignore_unknown=True))
        except EdgekitError as error:
            answer = refusal(error)
        except ValueError as error:
            answer = {"error": f"the farm does not understand the request: {error}", "hint": ""}
        if answer is not None:
            self.send(answer)
            self.end()
