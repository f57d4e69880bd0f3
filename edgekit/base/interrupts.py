"""Moments in which Ctrl-C has to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Deliver signals after the block: around starting a process, which must not be running
    while nobody knows of it. For short blocks only."""
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
