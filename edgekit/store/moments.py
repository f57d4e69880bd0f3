"""Moments as text that sorts as time does, and whether a process of earlier is still there."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone
from pathlib import Path

_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"


def now() -> str:
    """ISO 8601, UTC, always of the same length."""
    return datetime.now(timezone.utc).strftime(_FORM)


def seconds_at(moment: str) -> float:
    """Since 1970; ValueError for what is no moment."""
    then = datetime.fromisoformat(moment.removesuffix("Z"))
    return (then.replace(tzinfo=timezone.utc) if then.tzinfo is None else then).timestamp()


def seconds_since(moment: str) -> float:
    return datetime.now(timezone.utc).timestamp() - seconds_at(moment)


def this_process() -> str:
    """Names this process among all that this start of the machine has had and will have: numbers of
    processes are used again."""
    return f"{_boot()} {os.getpid()} {_started(os.getpid())}"


def is_known_gone(host: str, process: str) -> bool:
    """Only where it can be told: on the same start of the same machine."""
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
    """In clock ticks since the start of the machine; empty where there is no such process."""
    try:
        said = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    fields = said.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
