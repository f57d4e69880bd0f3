"""The child's end of tuning/child.py: reads messages on stdin, answers on the original stdout.

Messages are pickles: both ends are this edgekit, and no other process has the pipe.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
from typing import Any

from edgekit.base.parent_process import end_with_parent
from edgekit.tuning.child import HEADER

_LOWEST_PRIORITY = 19


def yield_to_others() -> None:
    """Give this process the lowest CPU priority."""
    os.nice(_LOWEST_PRIORITY)


class Channel:
    """The connection to the search that started this process, which ends with the search."""

    def __init__(self) -> None:
        end_with_parent()
        # Other output on stdout must not mix with the messages.
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._messages = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)

    def waiting(self, seconds: float | None) -> bool:
        """Return whether a message arrives in time."""
        return bool(select.select([self._messages], [], [], seconds)[0])

    def next(self) -> Any:
        """Return the next message, or end the process if there will be no more."""
        (size,) = HEADER.unpack(self._read(HEADER.size))
        return pickle.loads(self._read(size))  # from this very edgekit

    def send(self, answer: object) -> None:
        data = pickle.dumps(answer)
        view = memoryview(HEADER.pack(len(data)) + data)
        while view:
            view = view[self._answers.write(view) or 0 :]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            block = self._messages.read(size - len(data))
            if not block:
                os._exit(0)
            data += block
        return bytes(data)
