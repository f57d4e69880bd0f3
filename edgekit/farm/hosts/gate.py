"""What another host's farm runs over here, through SSH: requests for the keeper as lines on stdin,
its answers as lines on stdout. It decides nothing.

`{"id": 7, "request": {...}}` opens a connection to the keeper, whose every line comes back as
`{"id": 7, "answer": {...}}`, and its end as `{"id": 7, "over": true}`. `{"id": 7, "close": true}`
closes it from the other side, as the end of stdin does with all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from edgekit.base.errors import EdgekitError
from edgekit.base.json_reader import read_json
from edgekit.farm.control import LONGEST_LINE, Conversation, refused
from edgekit.farm.lines import read_lines
from edgekit.version import __version__

SECONDS_OF_SILENCE = 30.0
"""A farm asks for news twice a second; one that is gone without a word holds nothing for ever."""
_MOST_AT_ONCE = 500


class Gate:
    def __init__(self, say: Callable[[dict[str, object]], None]) -> None:
        self._tell = say
        self._telling = threading.Lock()
        self._open: dict[int, Conversation] = {}
        self._changing = threading.Lock()

    def serve(self, descriptor: int) -> None:
        """Until the end of what comes from there, or until nothing does."""
        self._say({"gate": __version__})
        try:
            for line in read_lines(descriptor, SECONDS_OF_SILENCE, LONGEST_LINE):
                self._take(line)
        finally:
            with self._changing:
                for conversation in self._open.values():
                    conversation.close()

    def _take(self, line: bytes) -> None:
        try:
            message = read_json(line)
            number = int(message["id"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # no farm says that; whoever does is told nothing
        if message.get("close"):
            with self._changing:
                conversation = self._open.get(number)
            if conversation is not None:
                conversation.close()
        elif isinstance(message.get("request"), dict) and len(self._open) < _MOST_AT_ONCE:
            threading.Thread(
                target=self._converse, args=(number, message["request"]), daemon=True
            ).start()

    def _converse(self, number: int, request: Mapping[str, Any]) -> None:
        try:
            conversation = Conversation(request)
            with self._changing:
                self._open[number] = conversation
            with conversation:
                while (answer := conversation.next_line()) is not None:
                    self._say({"id": number, "answer": answer})
        except EdgekitError as error:
            self._say({"id": number, "answer": refused(error)})
        finally:
            with self._changing:
                self._open.pop(number, None)
            self._say({"id": number, "over": True})

    def _say(self, document: dict[str, object]) -> None:
        with self._telling:
            try:
                self._tell(document)
            except OSError:
                os._exit(1)  # nobody listens any more
