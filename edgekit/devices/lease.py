"""A device that is ours for a while: one user at a time, and nothing left behind.

A shell over there holds a lock and a scratch folder for as long as its input is open, which ends
with the connection however that ends: nobody has to come back to free a device.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.devices.device_log import ADD_TO_LOG
from edgekit.errors import DeviceError
from edgekit.events import SILENT, Events

if TYPE_CHECKING:
    from edgekit.devices.connection import Connection
    from edgekit.devices.remote_command import RemoteCommand

# Without flock there is no telling who else is at work, and nobody's folder is swept. What the
# shell is sent while it holds the device are entries of the log: they cost no command of their own.
_HOLD = f"""\
LC_ALL=C; export LC_ALL
{ADD_TO_LOG}
cd "$1" || exit 1
umask 077
if command -v flock >/dev/null 2>&1; then
  exec 9>>lock || exit 1
  if ! flock -n 9; then
    echo busy "$(cat holder 2>/dev/null | head -c 80)"
    [ "$3" = wait ] || exit 0
    flock 9
  fi
  rm -rf runs/* runs/.[!.]*
  printf '%s\\n' "$4" >holder
fi
mkdir "runs/$2" || exit 1
echo mine
while IFS= read -r line; do add_to_log "$line"; done
rm -rf "runs/$2"
"""

_SECONDS_TO_LOG = 5.0


@dataclass(frozen=True)
class Lease:
    scratch: str
    """A folder over there that is gone when the lease ends."""
    _holder: RemoteCommand

    def log(self, line: str) -> None:
        """Add an entry to the device's log, as `log_line` makes it."""
        with suppress(DeviceError):  # whoever uses the device is told that it is gone
            self._holder.send(line.encode() + b"\n", _SECONDS_TO_LOG)


class DeviceBusy(DeviceError):
    """Somebody else is using the device."""


@contextmanager
def lease(
    connection: Connection,
    root: str,
    *,
    wait: float | None,
    user: str = "",
    events: Events = SILENT,
) -> Iterator[Lease]:
    """Hold the device for the time of the block. `wait` is for how many seconds to wait where
    another one holds it; None raises DeviceBusy at once."""
    name = secrets.token_hex(8)
    words = ("sh", "-c", _HOLD, "edgekit", root, name, "stay" if wait is None else "wait", user)
    with connection.command(words) as holder:
        answer = holder.read_line(timeout=30)
        if answer.startswith("busy"):
            by = answer.removeprefix("busy").strip()
            busy = f"{connection.name} is in use" + (f" by {by}" if by else "")
            if wait is None:
                raise DeviceBusy(busy, hint="wait, or name another device with --device")
            events.warn(f"{busy}: waiting")
            answer = holder.read_line(timeout=wait)
        if answer != "mine":
            raise DeviceError(
                f"{connection.name} gives no place to work in: {answer[:200]}",
                hint=f"check {root} over there: its owner, its permissions, its file system",
                details=holder.errors()[-12:],
            )
        yield Lease(f"{root}/runs/{name}", holder)
