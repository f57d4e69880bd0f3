"""The program that another host's farm runs through SSH, as `edgekit farm gate`: requests for the
keeper arrive as lines on stdin, its answers leave as lines on stdout.

`{"id": 7, "request": {...}}` opens a connection to the keeper. Each of its lines comes back as
`{"id": 7, "answer": {...}}`, and its end as `{"id": 7, "over": true}`. The caller closes it with
`{"id": 7, "close": true}`, or all of them with the end of stdin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from edgekit.base.decode import decode_json
from edgekit.base.errors import EdgekitError
from edgekit.devices.keeper_client import Conversation
from edgekit.devices.keeper_messages import ToRelay
from edgekit.farm.control import read_lines, refusal
from edgekit.version import __version__

SECONDS_OF_SILENCE = 30.0
"""The silence after which the caller counts as gone: a farm asks for news twice a second."""
_MOST_AT_ONCE = 500


class Relay:
    def __init__(self, write: Callable[[dict[str, object]], None]) -> None:
        self._write = write
        self._write_lock = threading.Lock()
        self._open: dict[int, Conversation] = {}
        self._open_lock = threading.Lock()

    def serve(self, descriptor: int) -> None:
        """Serve until the caller's input ends or stays silent."""
        self._say({"gate": __version__})
        try:
            for line in read_lines(descriptor, SECONDS_OF_SILENCE):
                self._take(line)
        finally:
            with self._open_lock:
                for conversation in self._open.values():
                    conversation.close()

    def _take(self, line: bytes) -> None:
        try:
            message = decode_json(ToRelay, line, ignore_unknown=True)
        except ValueError:
            return  # it is not from a farm
        if message.close:
            with self._open_lock:
                conversation = self._open.get(message.id)
            if conversation is not None:
                conversation.close()
        elif message.request is not None and len(self._open) < _MOST_AT_ONCE:
            threading.Thread(
                target=self._converse, args=(message.id, message.request), daemon=True
            ).start()

    def _converse(self, number: int, request: Mapping[str, object]) -> None:
        try:
            conversation = Conversation(request)
            with self._open_lock:
                self._open[number] = conversation
            with conversation:
                while (answer := conversation.next_line()) is not None:
                    self._say({"id": number, "answer": answer})
        except EdgekitError as error:
            self._say({"id": number, "answer": refusal(error)})
        finally:
            with self._open_lock:
                self._open.pop(number, None)
            self._say({"id": number, "over": True})

    def _say(self, document: dict[str, object]) -> None:
        with self._write_lock:
            try:
                self._write(document)
            except OSError:
                os._exit(1)  # the caller is gone
