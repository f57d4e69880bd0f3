"""The other end of tuning/child.py: takes messages on stdin, answers on what was stdout.

Messages are pickles: both ends are this very edgekit, and nobody else has the pipe.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
from typing import Any

from edgekit.base.parent_process import end_with_parent
from edgekit.tuning.child import HEADER

_POLITE = 19


def yield_to_others() -> None:
    """From now on this process runs where nobody else on this machine wants to."""
    os.nice(_POLITE)


class Channel:
    """To the search that started this process, and which it does not outlive."""

    def __init__(self) -> None:
        end_with_parent()
        # Whatever else writes to stdout must not end up between the messages.
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._messages = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)

    def waiting(self, seconds: float | None) -> bool:
        """Whether a message comes within so long."""
        return bool(select.select([self._messages], [], [], seconds)[0])

    def next(self) -> Any:
        """The process ends where there will be no more: nothing of TVM's needs taking down."""
        (size,) = HEADER.unpack(self._read(HEADER.size))
        return pickle.loads(self._read(size))  # from this very edgekit

    def say(self, answer: object) -> None:
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
