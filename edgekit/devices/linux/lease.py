"""Exclusive use of a device for a while, without leftovers.

A shell on the device holds a lock and a scratch folder while its input is open. The input ends with
the connection, however that ends, so a device frees itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.measurer import Measurer, measurer_by
from edgekit.base.options import option
from edgekit.base.wording import duration
from edgekit.devices.base import DeviceBusy
from edgekit.devices.linux.device_log import ADD_TO_LOG
from edgekit.devices.linux.probe import (
    FIND_ROOT,
    FOLDER,
    PLATFORM,
    DeviceFacts,
    Processor,
    ask_device,
    check_place,
)
from edgekit.devices.linux.remote_command import CommandEnded, CommandTimeout
from edgekit.devices.linux.signs_of_life import END_STREAMS, LISTEN

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

PATIENCE = 3.0
"""Seconds to wait for a user of the device, who may be about to release it."""
_LONGEST_HOLDER = 160

# Every program started on a slow board costs tens of milliseconds, so the shell does what it can by
# itself. Without flock other users cannot be detected, and no folder is swept. While the shell
# holds the device its input is log entries, which then cost no command of their own.
_HOLD = f"""\
LC_ALL=C; export LC_ALL
{ADD_TO_LOG}
say() {{ printf 'edgekit %s %s\\n' "$1" "$2"; }}
{LISTEN}
{END_STREAMS}
{FIND_ROOT}
cd "$root" 2>/dev/null && [ -d objects ] && [ -d runs ] || {{ say none; exit; }}
umask 077
read_uptime() {{ up=; IFS=' .' read -r up left </proc/uptime; }} 2>/dev/null
if command -v flock >/dev/null 2>&1; then
  exec 9>>lock || exit 1
  held= tries={PATIENCE:g}
  try_lock() {{ flock -n 9 && held=yes; }}
  try_lock || [ "$3" = wait ] || while [ $tries -gt 0 ]; do
    sleep 1; try_lock && break; tries=$((tries - 1))
  done
  if [ -z "$held" ]; then
    by= since=
    {{ IFS= read -r by; read -r since; }} 2>/dev/null <holder
    read_uptime
    case "$since" in ''|*[!0-9]*) age=unknown;; *) age=$((${{up:-$since}} - since));; esac
    say busy "$age $(printf %.{_LONGEST_HOLDER}s "$by")"
    [ "$3" = wait ] || exit 0
    flock 9
  fi
  for left in runs/* runs/.[!.]*; do
    [ -e "$left" ] && rm -rf runs/* runs/.[!.]* && break
  done
  read_uptime
  printf '%s\\n%s\\n' "$4" "$up" >holder
fi
mine=runs/$2
mkdir "$mine" || exit 1
shift 4
say root "$root"
{{ read -r machine </proc/sys/kernel/arch; }} 2>/dev/null || machine=$(uname -m)
say machine "$machine"
platform=
for file in {" ".join(PLATFORM)}; do
  word=
  {{ IFS= read -r word <"$file"; }} 2>/dev/null
  platform="$platform $word"
done
say platform "$platform"
[ $# -eq 0 ] || ls -lnd "$@" 2>/dev/null
[ ! -f "$1" ] || [ -x "$1" ] || say noexec
say cpuinfo
cat /proc/cpuinfo
say mine
for last; do :; done
[ $# -eq 0 ] || touch -c "${{1%/*}}" "${{last%/*}}"
listener=$$
heard() {{ [ -z "$line" ] || add_to_log "$line"; }}
ended() {{ rm -rf "$mine"; end_streams; }}
listen
"""

SECONDS_TO_LOG = 5.0
_LONGEST_ANSWER = 4 << 20
_MOST_DIGITS = 9
_DAY_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Lease:
    root: str
    scratch: str
    """Folder on the device that is deleted when the lease ends."""
    cpu: Processor
    measured_by: Measurer
    """What measures on it, as the device itself says."""
    present: Mapping[str, int]
    """Sizes of the requested files that exist."""
    facts: DeviceFacts | None
    """Facts learnt when edgekit's folder had to be made; else None."""
    _write: Callable[[str], None]

    def log(self, line: str) -> None:
        """Add an entry, as `log_line` makes it, to the device's log."""
        with suppress(DeviceError):  # the user of the device is told that it is gone
            self._write(line)


class _NoPlace(DeviceError):
    """edgekit's folder is missing, or is not what it should be."""


@contextmanager
def lease(
    connection: Connection,
    directory: str | None,
    *,
    wait: float | None,
    user: str = "",
    files: Sequence[str] = (),
    events: Events = SILENT,
) -> Iterator[Lease]:
    """Hold the device for the block. `wait` is the most seconds to wait while it is in use; with
    None they are few, for a user that has just ended.

    `files` are looked up in the device's folder, and their folders count as used. The first one is
    a program, and counts as missing if it can't be run.
    """
    holding = partial(_hold, connection, directory or FOLDER, wait, user, files, events)
    with ExitStack() as held:
        try:
            leased = held.enter_context(holding())
        except _NoPlace:
            facts = ask_device(connection, directory)
            check_place(facts, connection.name)
            leased = replace(held.enter_context(holding()), facts=facts)
        yield leased


@contextmanager
def _hold(
    connection: Connection,
    directory: str,
    wait: float | None,
    user: str,
    files: Sequence[str],
    events: Events,
) -> Iterator[Lease]:
    name = secrets.token_hex(8)
    how = "stay" if wait is None else "wait"
    words = ("sh", "-c", _HOLD, "edgekit", directory, name, how, user, *files)
    with connection.command(words, listens=True) as holder:

        def write(line: str) -> None:
            holder.send(line.encode() + b"\n", SECONDS_TO_LOG)

        leased = read_lease(holder, connection.name, name, wait, write, events)
        if leased is None:
            raise _NoPlace(
                f"{connection.name} has no place to work in",
                hint=f"check the owner, permissions and file system of {directory} on the device",
                details=holder.errors()[-12:],
            )
        yield leased


def read_lease(
    holder: RemoteCommand,
    device: str,
    name: str,
    wait: float | None,
    write: Callable[[str], None],
    events: Events,
) -> Lease | None:
    """Read the answer of the holder, a shell or the agent. DeviceBusy if the device is in use, None
    if it can't be held.

    `name` is that of the scratch folder, `write` adds to the log.
    """
    try:
        answer = _Answer.read(holder, 30)
        if answer.busy is not None:
            busy = _in_use(device, answer.busy)
            if wait is None:
                raise DeviceBusy(busy, hint=f"wait, or name another device with {option('device')}")
            answer = _wait(holder, busy, wait, events)
    except CommandEnded:
        return None
    if not answer.root.startswith("/"):
        return None
    cpu = Processor(answer.machine, answer.cpuinfo)
    scratch = f"{answer.root}/runs/{name}"
    measured_by = measurer_by(answer.platform, answer.cpuinfo)
    return Lease(answer.root, scratch, cpu, measured_by, answer.files(), None, write)


def _wait(holder: RemoteCommand, busy: str, wait: float, events: Events) -> _Answer:
    """Wait for the device; at first without a word, as a command that ended may just free it."""
    quiet = min(PATIENCE, wait)
    with suppress(CommandTimeout):
        return _Answer.read(holder, quiet)
    events.warn(f"{busy}: waiting")
    try:
        return _Answer.read(holder, wait - quiet)
    except CommandTimeout as error:
        raise DeviceBusy(
            f"{busy}, and was not free after {wait:g} s",
            hint=f"wait longer with {option('timeout')}, or name another device with "
            f"{option('device')}",
        ) from error


def _in_use(device: str, busy: str) -> str:
    """Say who has held a device since when, from the seconds since then and the holder's name.

    The seconds are counted on the device, whose clock may be wrong.
    """
    since, _, by = busy.strip().partition(" ")
    said = f"{device} is in use" + (f" by {by.strip()}" if by.strip() else "")
    if not since.isdecimal() or len(since) > _MOST_DIGITS:
        return said
    age = int(since)
    began = datetime.now() - timedelta(seconds=age)
    at = f"{began:%H:%M}" if age < _DAY_SECONDS else f"{began:%Y-%m-%d %H:%M}"
    return f"{said} since {at} ({duration(age)})"


@dataclass
class _Answer:
    """The holder's messages before it holds the device, without the output of start-up files."""

    busy: str | None = None
    root: str = ""
    machine: str = ""
    cpuinfo: str = ""
    runnable: bool = True
    platform: str = ""
    listed: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(holder: RemoteCommand, seconds: float) -> _Answer:
        answer = _Answer()
        ends_at = time.monotonic() + seconds
        lines, taken = answer.listed, 0
        while True:
            line = holder.read_line(max(ends_at - time.monotonic(), 0))
            taken += len(line)
            if taken > _LONGEST_ANSWER:
                return _Answer()
            word, _, rest = line.removeprefix("edgekit ").partition(" ")
            if not line.startswith("edgekit "):
                lines.append(line)
            elif word == "busy":
                return _Answer(busy=rest)
            elif word == "none":
                return _Answer()
            elif word in ("root", "machine", "platform"):
                setattr(answer, word, rest)
            elif word == "file":
                size, _, path = rest.partition(" ")
                answer.sizes[path] = int(size) if size.isdecimal() else -1
            elif word == "noexec":
                answer.runnable = False
            elif word == "cpuinfo":
                lines = []
            elif word == "mine":
                answer.cpuinfo = "\n".join(lines)
                return answer

    def files(self) -> dict[str, int]:
        """Return the files' sizes by path, from the agent's message or the lines of `ls -lnd`."""
        listed = [line.split() for line in self.listed]
        found = {
            words[-1]: int(words[4])
            for words in listed
            if len(words) > 5 and words[0].startswith("-") and words[4].isdecimal()
        }
        return {**self.sizes, **found} if self.runnable else {}
