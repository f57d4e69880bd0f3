"""Who speaks with the keeper: one request each, and answers until either side hangs up."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from edgekit.base.errors import EdgekitError
from edgekit.base.json_reader import read_json
from edgekit.farm.control import LONGEST_LINE, refused

_SECONDS_TO_SEND = 5.0


class Client:
    """Answers may come at once or later; `gone` is called when the client hangs up before that."""

    def __init__(
        self,
        stream: socket.socket,
        selector: selectors.BaseSelector,
        answer: Callable[[Client, Mapping[str, Any]], Mapping[str, object] | None],
    ) -> None:
        self.gone: Callable[[], None] = lambda: None
        self._stream = stream
        self._selector = selector
        self._answer = answer
        self._heard = bytearray()
        self._asked = False
        self._is_open = True
        stream.setblocking(False)
        selector.register(stream, selectors.EVENT_READ, self._hear)

    def say(self, document: Mapping[str, object]) -> None:
        if not self._is_open:
            return
        self._stream.settimeout(_SECONDS_TO_SEND)
        with suppress(OSError):  # it has hung up, which is heard next
            self._stream.sendall(json.dumps(document).encode() + b"\n")
        self._stream.setblocking(False)

    def end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._selector.unregister(self._stream)
            self._stream.close()

    def _hear(self) -> None:
        try:
            block = self._stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block and self._asked:
            self.gone()
            self.end()
            return
        if self._asked:
            return  # it has said all that there is to say
        self._heard += block
        if b"\n" in self._heard:
            self._asked = True
            self._ask(bytes(self._heard.partition(b"\n")[0]))
        elif not block or len(self._heard) > LONGEST_LINE:
            self.end()

    def _ask(self, line: bytes) -> None:
        try:
            request = read_json(line)
            if not isinstance(request, dict):
                raise TypeError("no object")
            answer = self._answer(self, request)
        except EdgekitError as error:
            answer = refused(error)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            answer = {"error": "the farm does not understand that", "hint": ""}
        if answer is not None:
            self.say(answer)
            self.end()
