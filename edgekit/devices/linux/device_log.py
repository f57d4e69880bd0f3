"""A device's log, kept on the device: one JSON object a line, in at most two files.

Every entry has this machine's time; the device adds its own clock, which may be wrong. Entries are
not trusted: any user who can write on the device may have written them.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

from edgekit.base.decode import Convert, decode_json
from edgekit.base.errors import DeviceError, EdgekitError
from edgekit.base.wording import PURPOSE, printable
from edgekit.devices.linux.probe import FOLDER

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection

LOG, OLDER_LOG = "log.jsonl", "log.1.jsonl"
LARGEST_LOG = 1 << 20
"""Bytes after which a new file begins; the previous file stays."""

MOST_LINES = 10_000
_LONGEST_TEXT = 400
_MOST_LAST_LINES = 12
_LONGEST_LINE = 1 << 16
_LATEST_CLOCK = 253_402_300_799
"""End of the year 9999."""

# Runs in edgekit's folder. It adds an entry, and never makes a command fail. `date +%s` is not
# POSIX, but coreutils and busybox have it.
ADD_TO_LOG = f"""\
add_to_log() {{
  clock=$(date +%s 2>/dev/null)
  case "$clock" in ''|*[!0-9]*) clock=null;; esac
  [ ! -f {LOG} ] || [ "$(wc -c <{LOG})" -lt {LARGEST_LOG} ] || mv -f {LOG} {OLDER_LOG}
  printf '{{"clock": %s, %s\\n' "$clock" "${{1#?}}" >>{LOG}
}} 2>/dev/null
"""

# Enters edgekit's folder on the device, named by the first word.
TO_ROOT = 'case "$1" in /*) cd "$1";; *) cd "${HOME:-.}/$1";; esac'

_READ = f"""\
LC_ALL=C; export LC_ALL
{TO_ROOT} 2>/dev/null || exit 0
size_of_log() {{ if [ -f {LOG} ]; then wc -c <{LOG}; else echo 0; fi; }}
shown=$(size_of_log)
{{ cat {OLDER_LOG}; head -c "$shown" {LOG}; }} 2>/dev/null | tail -n "$2"
[ "$3" = follow ] || exit 0
while sleep 1; do
  size=$(size_of_log)
  [ "$size" -ge "$shown" ] || shown=0
  [ "$size" -eq "$shown" ] || tail -c +$((shown + 1)) {LOG} | head -c $((size - shown))
  shown=$size
done
"""


def checked_digest(value: object) -> str | None:
    return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None


def checked_seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e9 else None


def device_time(seconds: int) -> str | None:
    """Return a device's clock in UTC; None if it is out of range."""
    if not 0 <= seconds <= _LATEST_CLOCK:
        return None
    return _utc(datetime.fromtimestamp(seconds, timezone.utc))


def _clock(value: object) -> str | None:
    return device_time(value) if type(value) is int else None


def checked_time(value: object) -> str | None:
    """Return a time as `now` writes it; None for anything else."""
    pattern = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
    return value if isinstance(value, str) and re.fullmatch(pattern, value) else None


def _text(value: object) -> str | None:
    return clean(value) if isinstance(value, str) else None


def _event(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return clean(value)[:40]


def _lines(value: object) -> tuple[str, ...]:
    lines = value[:_MOST_LAST_LINES] if isinstance(value, list) else ()
    return tuple(clean(str(line)) for line in lines)


def clean(text: str) -> str:
    """Return one line of bounded length, without terminal control characters."""
    return printable(" ".join(text[: 4 * _LONGEST_TEXT].split()))[:_LONGEST_TEXT]


def _utc(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_Text = Annotated[str | None, Convert("text", _text)]


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """An entry of the log. Unknown is None."""

    time: Annotated[str | None, Convert("a time", checked_time)] = None
    """Time in UTC, by the clock of the machine that edgekit ran on."""
    clock: Annotated[str | None, Convert("seconds", _clock)] = None
    """Time in UTC, by the device's own clock."""
    event: Annotated[str, Convert("a word", _event)]
    """One of: run, verified, measured, deployed, rolled back, tidied up."""
    failed: Annotated[bool, Convert("true or false", lambda value: value is True)] = False
    by: _Text = None
    model: _Text = None
    digest: Annotated[str | None, Convert("a digest", checked_digest)] = None
    seconds: Annotated[float | None, Convert("seconds", checked_seconds)] = None
    message: _Text = None
    last_lines: Annotated[tuple[str, ...], Convert("lines", _lines)] = ()
    """Last lines that the failed program wrote."""


def log_line(
    event: str,
    *,
    model: str | None = None,
    digest: str | None = None,
    seconds: float | None = None,
    message: str | None = None,
    error: EdgekitError | None = None,
) -> str:
    """Return an entry as `add_to_log` takes it, without the device's clock."""
    entry: dict[str, object] = {
        "time": now(),
        "event": event,
        "failed": error is not None,
        "by": clean(who()),
    }
    if model is not None:
        entry["model"] = clean(model)
    if digest is not None:
        entry["digest"] = digest
    if seconds is not None:
        entry["seconds"] = round(seconds, 9)
    if message is not None or error is not None:
        entry["message"] = clean(error.message if error is not None else message or "")
    if error is not None and error.details:
        entry["last_lines"] = [clean(line) for line in error.details[-_MOST_LAST_LINES:]]
    return json.dumps(entry)


def who() -> str:
    """Name the user and machine of this process, for others who read the log."""
    return f"{getpass.getuser()} on {socket.gethostname()}"


def holder() -> str:
    """Name the holder of a device and its command, for others that wait."""
    purpose = os.environ.get(PURPOSE)
    return who() + (f" for `{clean(purpose)}`" if purpose else "") + f" (process {os.getpid()})"


def now() -> str:
    return _utc(datetime.now(timezone.utc))


def read_log(
    connection: Connection,
    directory: str | None,
    lines: int,
    *,
    follow: Callable[[LogEntry], None] | None = None,
) -> tuple[LogEntry, ...]:
    """Return the latest entries, oldest first. With `follow`, which receives each one, continue
    with new entries until Ctrl-C."""
    entries: list[LogEntry] = []
    take = follow or entries.append

    def take_line(line: str) -> None:
        entry = parse_line(line)
        if entry is not None and len(entries) < lines:
            take(entry)

    mode = "follow" if follow is not None else "stop"
    words = ("sh", "-c", _READ, "edgekit", directory or FOLDER, str(min(lines, MOST_LINES)), mode)
    done = connection.run(words, timeout=None if follow else 60, on_line=take_line)
    if done.status != 0:
        raise DeviceError(
            f"the log of {connection.name} could not be read",
            hint="check the owner and permissions of edgekit's folder on the device",
            details=done.errors[-12:],
        )
    return tuple(entries)


def parse_line(line: str) -> LogEntry | None:
    """Read an untrusted entry; None if it is invalid."""
    if len(line) > _LONGEST_LINE:
        return None
    try:
        return decode_json(LogEntry, line, ignore_unknown=True)
    except ValueError:
        return None
