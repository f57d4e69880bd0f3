"""Lines from a pipe, for processes that must not wait for ever."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

_BLOCK = 1 << 16


def read_lines(descriptor: int, silence: float | None, longest: int) -> Iterator[bytes]:
    """Until its end, until nothing came for `silence` seconds, or until a line is too long."""
    rest = b""
    while len(rest) <= longest:
        ready, _, _ = select.select([descriptor], [], [], silence)
        block = os.read(descriptor, _BLOCK) if ready else b""
        if not block:
            return
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
