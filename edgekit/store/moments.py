"""Times as text that sorts by time, and whether an earlier process still runs."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone
from pathlib import Path

_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"


def now() -> str:
    """Return the time now: ISO 8601, UTC, always of the same length."""
    return datetime.now(timezone.utc).strftime(_FORM)


def seconds_at(moment: str) -> float:
    """Convert a time to seconds since 1970; raise ValueError for any other text."""
    then = datetime.fromisoformat(moment.removesuffix("Z"))
    return (then.replace(tzinfo=timezone.utc) if then.tzinfo is None else then).timestamp()


def seconds_since(moment: str) -> float:
    """Return the seconds from a time until now."""
    return datetime.now(timezone.utc).timestamp() - seconds_at(moment)


def this_process() -> str:
    """Identify this process among all since the host's start: process ids are used again."""
    return f"{_boot()} {os.getpid()} {_started(os.getpid())}"


def has_surely_ended(host: str, process: str) -> bool:
    """Tell whether a process has ended; only a process since this host's start can be judged."""
    boot, _, rest = process.partition(" ")
    number, _, started = rest.partition(" ")
    if host != socket.gethostname() or not boot or boot != _boot() or not number.isdecimal():
        return False
    return _started(int(number)) != started


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _started(process: int) -> str:
    """Return the start of a process in clock ticks since the host's; empty if it has ended."""
    try:
        said = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    fields = said.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
