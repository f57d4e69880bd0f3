"""The agent on a device, at our service: one process there for all that a session asks for.

On a slow board each program that is started costs a tenth of a second, and the agent, with TVM's
runtime in it, several. `agent/src/attend.cc` is the other side.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgekit.agent.build import AGENT
from edgekit.base.events import SILENT, Events
from edgekit.devices.linux.lease import SECONDS_TO_LOG, Lease, read_lease
from edgekit.devices.linux.probe import FIND_ROOT, FOLDER
from edgekit.devices.linux.remote_command import CommandEnded

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

_SECONDS_TO_START = 30.0

# The shell stays, to tell by which signal the agent ended.
_ATTEND = f"""\
LC_ALL=C; export LC_ALL
{FIND_ROOT}
program=$root/$2; shift 2
[ -x "$program" ] || {{ echo "edgekit none"; exit 0; }}
"$program" attend --silence "$silence" --connection "$mark" "$@" "$root"
exit $?
"""


class Attendant:
    """Use `attending`."""

    def __init__(self, command: RemoteCommand, device: str) -> None:
        self.command = command
        self._device = device
        self._is_here: bool | None = None

    def is_here(self) -> bool:
        """False where it is not on the device, or does not start there."""
        if self._is_here is None:
            try:
                while not (line := self.command.read_line(_SECONDS_TO_START)).startswith(
                    "edgekit "
                ):
                    pass  # what the shell's start-up files say
                self._is_here = line.split() == ["edgekit", "here"]
            except CommandEnded:
                self._is_here = False
        return self._is_here

    def take(
        self, wait: float | None, user: str, files: Sequence[str], events: Events = SILENT
    ) -> Lease | None:
        """Hold the device until the command ends, as `lease` does it; None where that fails."""
        name = secrets.token_hex(8)
        self.ask(("take", "stay" if wait is None else "wait", name, user, *files))
        return read_lease(self.command, self._device, name, wait, self.log, events)

    def log(self, line: str) -> None:
        self.ask(("log", line), SECONDS_TO_LOG)

    def record_again(self, folder: str, digest: str, keep: int, record: str, line: str) -> bool:
        """Note one more deployment of what is current; False where more than that is to be done."""
        self.ask(("record", folder, digest, str(keep), record, line))
        return self.command.read_line(_SECONDS_TO_START).split() == ["edgekit", "recorded"]

    def ask(self, words: Sequence[str], silence: float = _SECONDS_TO_START) -> None:
        lines = [str(len(words)), *(word.replace("\n", " ") for word in words), ""]
        self.command.send("\n".join(lines).encode(errors="replace"), silence)


@contextmanager
def attending(
    connection: Connection, directory: str | None, digest: str, held: str | None = None
) -> Iterator[Attendant]:
    """The agent of that digest, started. `held` is the scratch folder of whoever holds the device
    already; else it holds the device itself, once it is asked to."""
    options = () if held is None else ("--held", held)
    program = f"agents/{digest}/{AGENT}"
    words = ("sh", "-c", _ATTEND, "edgekit", directory or FOLDER, program, *options)
    with connection.command(words, title=AGENT, listens=True) as command:
        yield Attendant(command, connection.name)
