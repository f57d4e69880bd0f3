"""Files on a device, by what is in them: what is there is not sent again.

A file is sent into objects/SHA256.part, going on where an earlier attempt was cut off. The device
hashes it and only then gives it its name, objects/SHA256: whatever has such a name is whole.
From there it is linked into the folders that are used, one for each version.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.devices.probe import DeviceFacts, check_place
from edgekit.devices.remote_command import CommandEnded
from edgekit.errors import DeviceError
from edgekit.events import SILENT, Events, Stage
from edgekit.files import storage_errors
from edgekit.wording import size

if TYPE_CHECKING:
    from edgekit.devices.connection import Connection
    from edgekit.devices.remote_command import RemoteCommand

_BLOCK = 1 << 18
_SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_WITHOUT_PROGRESS = 60.0
_SECONDS_TO_HASH = 600.0
_SPARE = 4 << 20
"""Bytes to be left over: the file system's own needs."""

_HAVE = """\
cd "$1" || exit 1; shift
for name; do
  if [ -f "$name" ]; then echo "$(wc -c <"$name") whole"
  elif [ -f "$name.part" ]; then echo "$(wc -c <"$name.part") part"
  else echo "0 none"; fi
done"""

# Whoever has the lock writes; whoever waited for it finds the file there, or goes on writing.
# Without flock, each writes a part of its own, from the start. The hash is made of what arrives,
# as it arrives: a disk that fills up shows in the size.
_RECEIVE = """\
LC_ALL=C; export LC_ALL
cd "$1" || exit 1
name=$2 mode=$3 size=$4 part=$2.part
umask 077
if command -v flock >/dev/null 2>&1; then
  exec 9>>"$part" || exit 1
  flock -n 9 || { echo wait; flock 9; }
else
  part=$2.$$.part; : >"$part"
fi
if [ -f "$name" ]; then rm -f "$part"; echo whole; exit 0; fi
offset=$(wc -c <"$part") || exit 1
if [ "$offset" -gt "$size" ]; then : >"$part"; offset=0; fi
echo "from" $offset
set -- $({ cat "$part"; tee -a "$part"; } | sha256sum)
[ "$(wc -c <"$part")" -eq "$size" ] || exit 74
if [ "$1" != "$name" ]; then : >"$part"; exit 65; fi
chmod "$mode" "$part" && mv -f "$part" "$name" || exit 1
echo stored"""
_CUT_OFF, _DAMAGED = 74, 65

_LINK = """\
LC_ALL=C; export LC_ALL
cd "$1" || exit 1
folder=$2 new=$2.new-$$; shift 2
umask 077
rm -rf "$new"; mkdir "$new" || exit 1
while [ $# -gt 1 ]; do
  ln "objects/$1" "$new/$2" 2>/dev/null || cp -p "objects/$1" "$new/$2" ||
    { rm -rf "$new"; exit 1; }
  shift 2
done
if [ -d "$folder" ]; then rm -rf "$folder.old-$$"; mv "$folder" "$folder.old-$$"; fi
mv "$new" "$folder"; code=$?
rm -rf "$folder".old-*
exit $code"""


@dataclass(frozen=True)
class Item:
    """A file to have on the device."""

    source: Path
    name: str
    """In its folder over there: one of ours, nothing a user chose."""
    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True)
class Sent:
    """What a push came to."""

    files: int
    bytes_sent: int
    bytes_there: int
    """What needed no sending."""
    seconds: float


class Store:
    """edgekit's files on one device."""

    def __init__(self, connection: Connection, facts: DeviceFacts) -> None:
        self._connection = connection
        self._facts = facts
        self.root = facts.root

    def push(
        self, items: Sequence[Item], folder: str, *, events: Events = SILENT, what: str = "files"
    ) -> Sent:
        """Have these files in `folder` (relative to the root), all of them or none."""
        started = time.monotonic()
        check_place(self._facts, self._connection.name)
        there = self._sizes(items)
        missing = [item for item in items if there.get(item.sha256) != (item.size, "whole")]
        missing = list({item.sha256: item for item in missing}.values())
        partial = {item.sha256: there[item.sha256][0] for item in missing}
        needed = sum(max(item.size - partial[item.sha256], 0) for item in missing)
        check_place(self._facts, self._connection.name, needed + _SPARE if needed else 0)
        sent = 0
        if missing:
            title = f"send {what} to {self._connection.name}"
            with events.stage(title, sum(item.size for item in missing)) as stage:
                progress = _Progress(stage)
                for item in missing:
                    if there[item.sha256][1] == "whole":
                        self._remove_damaged(item)
                    sent += self._send_until_sound(item, progress, events)
                stage.result = progress.summary(sent)
        self._link(items, folder)
        total = sum(item.size for item in items)
        return Sent(len(items), sent, max(total - sent, 0), time.monotonic() - started)

    def path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def _sizes(self, items: Sequence[Item]) -> dict[str, tuple[int, str]]:
        names = [item.sha256 for item in items]
        done = self._connection.run(
            ("sh", "-c", _HAVE, "edgekit", self.path("objects"), *names), timeout=60
        )
        found = [line.split() for line in done.output.splitlines()]
        if done.status != 0 or len(found) != len(names):
            self._fail("look for files", done.errors)
        return {
            name: (int(words[0]), words[1])
            for name, words in zip(names, found, strict=True)
            if len(words) == 2 and words[0].isdecimal()
        }

    def _send_until_sound(self, item: Item, progress: _Progress, events: Events) -> int:
        """Send one file; a part that turns out to be damaged is sent again from the start, once."""
        for last in (False, True):
            sent = self._send(item, progress, events)
            if sent is not None:
                return sent
            if not last:
                events.warn(f"what {self._connection.name} had of {item.name} was damaged: again")
        raise DeviceError(
            f"{item.name} arrives damaged on {self._connection.name}",
            hint="the device's disk or memory may be failing; or the file here is being changed",
        )

    def _send(self, item: Item, progress: _Progress, events: Events) -> int | None:
        """The bytes that were sent; None where the device's hash is not the file's."""
        mode = "700" if item.executable else "600"
        words = ("sh", "-c", _RECEIVE, "edgekit", self.path("objects"))
        with self._connection.command((*words, item.sha256, mode, str(item.size))) as command:
            answer = self._answer(command)
            if answer == "wait":
                events.note(f"{self._connection.name} is being sent {item.name} already: waiting")
                answer = self._answer(command, _SECONDS_TO_HASH)
            if answer == "whole":
                progress.skip(item.size)
                return 0
            word, _, offset = answer.partition(" ")
            if word != "from" or not offset.isdecimal() or int(offset) > item.size:
                self._fail(f"take {item.name}", (*command.errors(), answer))
            progress.skip(int(offset))
            try:
                self._feed(command, item, int(offset), progress)
                command.end_input()
            except CommandEnded as error:
                self._fail(f"store {item.name}", command.errors() or (error.message,))
            done = command.finish(silence=_SECONDS_TO_HASH)
        if done.status == 0 and done.output.strip() == "stored":
            return item.size - int(offset)
        if done.status == _DAMAGED:
            progress.skip(-item.size)
            return None
        why = done.errors or (("it holds fewer bytes than were sent",) if done.status == 74 else ())
        self._fail(f"store {item.name}", why)
        return None

    def _answer(self, command: RemoteCommand, timeout: float = 60.0) -> str:
        return command.read_line(timeout)

    def _feed(self, command: RemoteCommand, item: Item, offset: int, progress: _Progress) -> None:
        with storage_errors("read the file to send", item.source):
            stream = item.source.open("rb", buffering=0)
        with stream:
            stream.seek(offset)
            left = item.size - offset
            buffer = bytearray(_BLOCK)
            while left > 0:
                with storage_errors("read the file to send", item.source):
                    count = stream.readinto(memoryview(buffer)[: min(left, _BLOCK)])
                if not count:
                    break  # shorter than it was; the device finds that out
                command.send(memoryview(buffer)[:count], SECONDS_WITHOUT_PROGRESS)
                left -= count
                progress.advance(count)

    def _link(self, items: Sequence[Item], folder: str) -> None:
        pairs = [word for item in items for word in (item.sha256, item.name)]
        done = self._connection.run(("sh", "-c", _LINK, "edgekit", self.root, folder, *pairs))
        if done.status != 0:
            self._fail(f"make the folder {folder}", done.errors)

    def _remove_damaged(self, item: Item) -> None:
        self._connection.run(("rm", "-f", self.path("objects", item.sha256)))

    def _fail(self, doing: str, errors: Sequence[str]) -> None:
        told = " ".join(errors).lower()
        if "no space left" in told or "quota" in told:
            hint = f"free some space over there: edgekit device clean {self._connection.name}"
            raise DeviceError(
                f"the disk of {self._connection.name} is full: it could not {doing}", hint=hint
            )
        reason = errors[-1].rpartition(": ")[2].strip() if errors else "it said nothing"
        raise DeviceError(
            f"{self._connection.name} could not {doing}: {reason[:1].lower()}{reason[1:]}",
            hint=f"check {self.root} over there: its owner, its permissions, its file system",
            details=tuple(errors[-12:]),
        )


class _Progress:
    """Tells a stage how far it is, and how fast, a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._started = time.monotonic()
        self._next = 0.0
        self._sent = 0
        self._untold = 0

    def advance(self, count: int) -> None:
        self._sent += count
        self._untold += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_REPORTS
            self._tell()

    def skip(self, count: int) -> None:
        self._untold += count
        self._tell()

    def summary(self, sent: int) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        return f"{size(sent)} at {size(int(sent / seconds))}/s"

    def _tell(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        self._stage.advance(self._untold, f"{size(int(self._sent / seconds))}/s")
        self._untold = 0
