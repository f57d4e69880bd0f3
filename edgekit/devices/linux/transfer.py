"""Files on a device, stored by their hash, so that no content is sent twice.

A file is sent into objects/SHA256.part. A partial file of an earlier attempt is continued if its
content is right. The host hashes the file on its way, and sends its last bytes only if the hash is
right. Then the device writes it to the disk and renames it to objects/SHA256. From there it is
linked into the folders that are used, one for each version.

Whatever has such a name is complete, even after a loss of power: a file system may write a name
before the bytes behind it. If a device can't ensure that, a file that is too short counts as
missing. A push ends when the names are on the disk too, and survives a loss of power.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import storage_errors
from edgekit.base.wording import size
from edgekit.devices.linux.probe import DeviceFacts, check_place
from edgekit.devices.linux.remote_command import CommandEnded

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

_BLOCK = 1 << 18
_SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_WITHOUT_PROGRESS = 60.0
_SECONDS_TO_HASH = 600.0
_SPARE = 4 << 20
"""Bytes to leave free for the file system's own needs."""

_HAVE = """\
cd "$1" || exit 1; shift
for name; do
  if [ -f "$name" ]; then echo "$(wc -c <"$name") whole"
  elif [ -f "$name.part" ]; then echo "$(wc -c <"$name.part") part"
  else echo "0 none"; fi
done"""

# The holder of the lock writes; a process that waited for it finds the file, or continues it.
# Without flock, each writes a part of its own, from the start. All but the last file are counted
# off by `head`, which may read ahead: the next file is sent only when this one is stored. `sync`
# writes the named file to the disk; an older one that takes no names writes all.
_RECEIVE = """\
LC_ALL=C; export LC_ALL
cd "$1" || exit 1
umask 077
shift
while [ $# -gt 0 ]; do
  name=$1 mode=$2 size=$3 part=$1.part; shift 3
  if command -v flock >/dev/null 2>&1; then
    exec 9>>"$part" || exit 1
    flock -n 9 || { echo wait; flock 9; }
  else
    part=$name.$$.part; : >"$part"
  fi
  if [ -f "$name" ] && [ "$(wc -c <"$name")" -eq "$size" ]; then
    rm -f "$part"; echo whole; continue
  fi
  offset=$(wc -c <"$part") || exit 1
  if [ "$offset" -gt "$size" ]; then : >"$part"; offset=0; fi
  sum=none
  if [ "$offset" -gt 0 ]; then sum=$(sha256sum <"$part") || exit 1; fi
  echo "from" $offset "${sum%% *}"
  read -r how || exit 1
  if [ "$how" != on ]; then : >"$part"; offset=0; fi
  if [ $# -eq 0 ]; then cat >>"$part" || exit 1
  else head -c $((size - offset)) >>"$part" || exit 1; fi
  [ "$(wc -c <"$part")" -eq "$size" ] || { echo "it holds less than was sent" >&2; exit 1; }
  chmod "$mode" "$part" || exit 1
  sync "$part" 2>/dev/null || sync 2>/dev/null
  mv -f "$part" "$name" || exit 1
  echo stored
done"""

_LINK = """\
LC_ALL=C; export LC_ALL
cd "$1" || exit 1
folder=$2 new=$2.new-$$; shift 2
umask 077
rm -rf "$new"; mkdir "$new" || exit 1
while [ $# -gt 1 ]; do
  if ! ln "objects/$1" "$new/$2" 2>/dev/null; then
    cp -p "objects/$1" "$new/$2" || { rm -rf "$new"; exit 1; }
    sync "$new/$2" 2>/dev/null || sync 2>/dev/null
  fi
  shift 2
done
if [ -d "$folder" ]; then rm -rf "$folder.old-$$"; mv "$folder" "$folder.old-$$"; fi
mv "$new" "$folder"; code=$?
rm -rf "$folder".old-*
sync objects "${folder%/*}" 2>/dev/null || sync 2>/dev/null
exit $code"""


@dataclass(frozen=True)
class Item:
    """A file to install on the device."""

    source: Path
    name: str
    """Name in its folder on the device, chosen by edgekit and never by a user."""
    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True)
class Sent:
    """Result of a push."""

    files: int
    bytes_sent: int
    bytes_present: int
    """Bytes that were on the device already."""
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
        """Install these files in `folder` (relative to the root), all of them or none."""
        started = time.monotonic()
        check_place(self._facts, self._connection.name)
        stored = self._sizes(items)
        missing = [item for item in items if stored.get(item.sha256) != (item.size, "whole")]
        missing = list({item.sha256: item for item in missing}.values())
        partial = {name: found for name, (found, state) in stored.items() if state == "part"}
        needed = sum(max(item.size - partial.get(item.sha256, 0), 0) for item in missing)
        check_place(self._facts, self._connection.name, needed + _SPARE if needed else 0)
        sent = 0
        if missing:
            title = f"send {what} to {self._connection.name}"
            with events.stage(title, sum(item.size for item in missing)) as stage:
                progress = _Progress(stage)
                sent = self._send(sorted(missing, key=lambda i: i.size), progress, events)
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

    def _send(self, items: Sequence[Item], progress: _Progress, events: Events) -> int:
        """Send files in one command and return the bytes sent."""
        words = ["sh", "-c", _RECEIVE, self._connection.stream_name, self.path("objects")]
        for item in items:
            words += [item.sha256, "700" if item.executable else "600", str(item.size)]
        sent = 0
        with self._connection.command(words) as command:
            for item in items:
                try:
                    sent += self._send_one(command, item, item is items[-1], progress, events)
                except CommandEnded as error:
                    self._fail(f"store {item.name}", command.errors() or (error.message,))
            done = command.finish(timeout=SECONDS_WITHOUT_PROGRESS)
        if done.status != 0:
            self._fail(f"store {items[-1].name}", done.errors)
        return sent

    def _send_one(
        self, command: RemoteCommand, item: Item, last: bool, progress: _Progress, events: Events
    ) -> int:
        name = self._connection.name
        answer = command.read_line(_SECONDS_TO_HASH)
        if answer == "wait":
            events.note(f"another process sends {item.name} to {name}: waiting")
            answer = command.read_line(_SECONDS_TO_HASH)
        if answer == "whole":
            progress.skip(item.size)
            return 0
        words = answer.split()
        if len(words) != 3 or words[0] != "from" or not words[1].isdecimal():
            self._fail(f"take {item.name}", (*command.errors(), answer))
        with storage_errors("read the file to send", item.source):
            stream = item.source.open("rb", buffering=0)
        with stream:
            offset = min(int(words[1]), item.size)
            source = _HashedSource(stream, item)
            if offset and source.hash_of_next(offset) != words[2]:
                events.warn(f"the partial {item.name} on {name} was damaged: sending it again")
                offset = 0
                source.rewind()
            progress.skip(offset)
            block = source.next_block()  # read before the command that makes the device store it
            command.send(b"on\n" if offset else b"over\n", SECONDS_WITHOUT_PROGRESS)
            while block:
                command.send(block, SECONDS_WITHOUT_PROGRESS)
                progress.advance(len(block))
                block = source.next_block()
            if last:
                command.end_input()
            if command.read_line(_SECONDS_TO_HASH) != "stored":
                self._fail(f"store {item.name}", command.errors())
        return item.size - offset

    def _link(self, items: Sequence[Item], folder: str) -> None:
        pairs = [word for item in items for word in (item.sha256, item.name)]
        done = self._connection.run(("sh", "-c", _LINK, "edgekit", self.root, folder, *pairs))
        if done.status != 0:
            self._fail(f"make the folder {folder}", done.errors)

    def _fail(self, doing: str, errors: Sequence[str]) -> None:
        text = " ".join(errors).lower()
        if "no space left" in text or "quota" in text:
            hint = f"free some space on it: edgekit device clean {self._connection.name}"
            raise DeviceError(
                f"the disk of {self._connection.name} is full: it could not {doing}", hint=hint
            )
        reason = errors[-1].rpartition(": ")[2].strip() if errors else "it said nothing"
        raise DeviceError(
            f"{self._connection.name} could not {doing}: {reason[:1].lower()}{reason[1:]}",
            hint=f"check the owner, permissions and file system of {self.root} on the device",
            details=tuple(errors[-12:]),
        )


class _HashedSource:
    """A file's bytes, hashed on their way. The last block comes only if the hash is right.

    SSH ensures that the bytes arrive unchanged, and the size on the device shows whether all of
    them did. So a file that changes meanwhile never becomes complete, and the device, which may
    hash slowly, has nothing to hash.
    """

    def __init__(self, stream: FileIO, item: Item) -> None:
        self._stream = stream
        self._item = item
        self._buffer = memoryview(bytearray(_BLOCK))
        self.rewind()

    def rewind(self) -> None:
        self._stream.seek(0)
        self._left = self._item.size
        self._hash = hashlib.sha256()

    def hash_of_next(self, size: int) -> str:
        after = self._left - size
        while self._left > after and self._read(self._left - after):
            pass
        return self._hash.hexdigest()

    def next_block(self) -> memoryview:
        """Return the next block, empty at the end; DeviceError if the file has changed."""
        block = self._read(self._left)
        if (self._left == 0 or not block) and self._hash.hexdigest() != self._item.sha256:
            raise DeviceError(
                f"{self._item.source} was changed while it was sent",
                hint="try again when nothing writes to it any more",
            )
        return block

    def _read(self, most: int) -> memoryview:
        with storage_errors("read the file to send", self._item.source):
            count = self._stream.readinto(self._buffer[: min(most, _BLOCK)])
        block = self._buffer[:count]
        self._hash.update(block)
        self._left -= len(block)
        return block


class _Progress:
    """Reports progress and speed to a stage a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._started = time.monotonic()
        self._next = 0.0
        self._sent = 0
        self._unreported = 0

    def advance(self, count: int) -> None:
        self._sent += count
        self._unreported += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_REPORTS
            self._tell()

    def skip(self, count: int) -> None:
        self._unreported += count
        self._tell()

    def summary(self, sent: int) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        return f"{size(sent)} at {size(int(sent / seconds))}/s"

    def _tell(self) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        self._stage.advance(self._unreported, f"{size(int(self._sent / seconds))}/s")
        self._unreported = 0
