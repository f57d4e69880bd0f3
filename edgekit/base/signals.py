"""The meaning of the signal that ended a process."""

from __future__ import annotations

import signal
from collections.abc import Mapping

_MEANINGS: Mapping[int, str] = {
    signal.SIGSEGV: "it touched memory that is not its own",
    signal.SIGBUS: "it touched memory that does not exist",
    signal.SIGILL: "it used an instruction that this CPU does not have",
    signal.SIGFPE: "an integer was divided by zero",
    signal.SIGABRT: "it gave up by itself",
    signal.SIGKILL: "it was killed from outside",
}


def signal_meaning(number: int) -> str:
    """Name a signal and its meaning: SIGSEGV (it touched memory that is not its own)."""
    name = next((s.name for s in signal.Signals if s == number), f"signal {number}")
    meaning = _MEANINGS.get(number) or _description(number) or "of unknown meaning"
    return f"{name} ({meaning})"


def _description(number: int) -> str | None:
    try:
        return signal.strsignal(number)
    except ValueError:
        return None
