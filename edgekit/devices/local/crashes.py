"""What to do about a model that crashed or failed."""

from __future__ import annotations

import signal

from edgekit.base.options import option
from edgekit.cross.library_code import OUTSIDE

_HINT_FOR_A_CRASH = (
    "this is a fault in compiled code, not in your input's form: build the model again, "
    "and report it with the model if it stays"
)


def signal_hint(number: int, board: str) -> str:
    """Say what to do about a signal; `board` is the board to build for."""
    if number == signal.SIGILL:
        return f"the bundle was built for another CPU; build it again with {option('board', board)}"
    if number == signal.SIGKILL:
        smaller = f"use a smaller model or {option('shape')}"
        return f"most likely memory ran out; free some, or {smaller}"
    if number == signal.SIGFPE:
        return "check the model's integer divisions, and the inputs they divide by"
    return _HINT_FOR_A_CRASH


def failure_hint(reason: str) -> str:
    """Say what to do about a model that ended with an error of its own."""
    if OUTSIDE in reason:
        return "feed indices that lie within the tensor"
    return "check that the bundle was built by this version of edgekit, for this board"
