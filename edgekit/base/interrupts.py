"""Defers Ctrl-C for short blocks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Deliver signals after the block, which must be short.

    Without it, an interrupted start of a process may leave a process that no code ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread alone
        return
    arrived: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    replaced = []
    try:
        for number in _INTERRUPTS:
            handler = signal.getsignal(number)
            if callable(handler):
                replaced.append((number, handler))
                signal.signal(number, remember)
        yield
    finally:
        for number, handler in replaced:
            signal.signal(number, handler)
        for caught in arrived:
            signal.raise_signal(caught)
