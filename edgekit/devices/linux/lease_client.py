"""The client of the agent on a device: one process serves the lease and all calls of a session.

On a slow board each program that is started costs a tenth of a second, and the agent, with TVM's
runtime in it, several. `agent/src/attend.cc` is the other side.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgekit.agent.build import AGENT
from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.devices.base import Recorded
from edgekit.devices.linux.device_log import checked_digest
from edgekit.devices.linux.lease import SECONDS_TO_LOG, Lease, read_lease
from edgekit.devices.linux.probe import FIND_ROOT, FOLDER
from edgekit.devices.linux.remote_command import CommandEnded
from edgekit.devices.linux.version_records import VersionRecord, folder_of, record_text

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

_SECONDS_TO_START = 30.0
_SECONDS_TO_RECORD = 300.0
"""Time limit for a record, which may delete the files of older versions."""

# The shell stays, to report the signal that ended the agent.
_ATTEND = f"""\
LC_ALL=C; export LC_ALL
{FIND_ROOT}
program=$root/$2; shift 2
[ -x "$program" ] || {{ echo "edgekit none"; exit 0; }}
"$program" attend --silence "$silence" --connection "$mark" "$@" "$root"
exit $?
"""


class LeaseClient:
    """Requests to a running agent. Use `lease_client`."""

    def __init__(self, command: RemoteCommand, device: str) -> None:
        self.command = command
        self._device = device
        self._is_running: bool | None = None

    def is_running(self) -> bool:
        """Tell whether the agent is on the device and starts."""
        if self._is_running is None:
            try:
                while not (line := self.command.read_line(_SECONDS_TO_START)).startswith(
                    "edgekit "
                ):
                    pass  # output of the shell's start-up files
                self._is_running = line.split() == ["edgekit", "here"]
            except CommandEnded:
                self._is_running = False
        return self._is_running

    def take(
        self, wait: float | None, user: str, files: Sequence[str], events: Events = SILENT
    ) -> Lease | None:
        """Hold the device until the command ends, as `lease` does; None if that fails."""
        name = secrets.token_hex(8)
        self.ask(("take", "stay" if wait is None else "wait", name, user, *files))
        return read_lease(self.command, self._device, name, wait, self.log, events)

    def log(self, line: str) -> None:
        self.ask(("log", line), SECONDS_TO_LOG)

    def record(self, record: VersionRecord, keep: int, line: str) -> Recorded:
        """Make a version the current one, delete all but the latest `keep`, and add `line` to the
        log. The caller must hold the device."""
        folder = folder_of(record.model)
        self.ask(("record", folder, record.digest, line, str(keep), record_text(record)))
        before, removed = None, []
        for word, digest in self._answers():
            if word == "before":
                before = checked_digest(digest)
            elif word == "removed" and checked_digest(digest) is not None:
                removed.append(digest)
        return Recorded(before, tuple(removed))

    def make_current(self, record: VersionRecord, line: str) -> None:
        """Make a recorded version the current one again, and add `line` to the log."""
        self.ask(("current", folder_of(record.model), record.digest, line))
        for _ in self._answers():
            pass

    def _answers(self) -> Iterator[tuple[str, str]]:
        while True:
            line = self.command.read_line(_SECONDS_TO_RECORD)
            word, _, rest = line.removeprefix("edgekit ").partition(" ")
            if word == "recorded":
                return
            if word == "failed":
                why = rest.rpartition(": ")[2][:200]
                raise DeviceError(
                    f"{self._device} could not make the model its current one: "
                    f"{why[:1].lower()}{why[1:]}",
                    hint="check edgekit's folder on the device; the current version is unchanged",
                    details=(rest[:400],),
                )
            yield word, rest

    def ask(self, words: Sequence[str], silence: float = _SECONDS_TO_START) -> None:
        lines = [str(len(words)), *(word.replace("\n", " ") for word in words), ""]
        self.command.send("\n".join(lines).encode(errors="replace"), silence)


@contextmanager
def lease_client(
    connection: Connection, directory: str | None, digest: str, held: str | None = None
) -> Iterator[LeaseClient]:
    """Start the agent of that digest. `held` is the scratch folder of a lease that exists already;
    without it the client's `take` holds the device."""
    options = () if held is None else ("--held", held)
    program = f"agents/{digest}/{AGENT}"
    words = ("sh", "-c", _ATTEND, "edgekit", directory or FOLDER, program, *options)
    with connection.command(words, title=AGENT, listens=True) as command:
        yield LeaseClient(command, connection.name)
