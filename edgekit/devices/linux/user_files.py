"""The user's own files and commands on a device: what has nothing to do with bundles.

Files travel as a tar archive through one command, because small SSH servers have no SFTP. They are
unpacked beside their target, and take their place when all of them have arrived.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from edgekit.base.errors import DeviceError, EdgekitError, StorageError, UsageError
from edgekit.base.events import SILENT, Events, Stage
from edgekit.base.files import scratch_directory, storage_errors
from edgekit.base.wording import counted, size
from edgekit.devices.linux.remote_command import CommandEnded

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection
    from edgekit.devices.linux.remote_command import RemoteCommand

_SECONDS_WITHOUT_PROGRESS = 60.0
_BLOCK = 1 << 16

# Several files, and what goes into a folder, keep their names; a single file may get another.
_UNPACK = """\
LC_ALL=C; export LC_ALL
cd || exit 1
target=$1 name=$2
case $target in '~') target=$HOME;; '~/'*) target=$HOME/${target#??};; esac
into=$target
case $target in */) name=;; esac
[ ! -d "$target" ] || name=
[ -z "$name" ] || into=$(dirname "$target")
mkdir -p "$into" || exit 1
new=$into/.edgekit-$$
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$new" && tar -x -f - -C "$new" || exit 1
[ -e "$new/.complete" ] || { echo "the files did not arrive whole" >&2; exit 1; }
rm -f "$new/.complete"
[ -z "$name" ] || { mv -f "$new/$name" "$target"; exit; }
for file in "$new"/* "$new"/.[!.]*; do
  [ -e "$file" ] || [ -L "$file" ] || continue
  if [ -d "$file" ] && [ -d "$into/${file##*/}" ]; then cp -Rpf "$file" "$into/" || exit 1
  else mv -f "$file" "$into/" || exit 1; fi
done"""

_PACK = """\
LC_ALL=C; export LC_ALL
cd || exit 1
source=$1
case $source in '~/'*) source=$HOME/${source#??};; esac
[ -e "$source" ] || { echo "there is no $source" >&2; exit 1; }
cd "$(dirname "$source")" && exec tar -c -f - "./$2\""""


@dataclass(frozen=True)
class Ended:
    """The end of a command of the user's."""

    status: int
    output: str
    """What it wrote on stdout and stderr, in the order in which it came; empty if it was passed on
    line by line."""


@dataclass(frozen=True)
class Copied:
    """Files that were copied to a device, or from it."""

    files: int
    bytes: int
    target: str


def run_command(
    connection: Connection, words: Sequence[str], on_line: Callable[[str], None] | None = None
) -> Ended:
    """Run a command. Its words arrive unchanged; it gets no input, and ends with the connection."""
    both = ("sh", "-c", 'exec "$@" 2>&1', "edgekit", *words)
    done = connection.run(both, timeout=None, on_line=on_line)
    return Ended(done.status, done.output)


def send_files(
    connection: Connection, sources: Sequence[Path], target: str, events: Events = SILENT
) -> Copied:
    """Copy files and folders of this host to the device; nothing changes if that fails."""
    names = [_name_of(source) for source in sources]
    if len(set(names)) < len(names):
        raise UsageError("two of the sources have the same name", hint="copy them one by one")
    total = sum(_bytes_in(source) for source in sources)
    single = names[0] if len(names) == 1 else ""
    words = ("sh", "-c", _UNPACK, connection.stream_name, _checked(target), single)
    with (
        events.stage(f"send {counted(len(names), 'item')} to {connection.name}", total) as stage,
        connection.command(words, title="tar") as command,
    ):
        counted_bytes = _Counted(stage)
        try:
            with storage_errors("read the files", sources[0]):
                stream = _Sending(command)
                with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
                    for source, name in zip(sources, names, strict=True):
                        _add(archive, source, name, counted_bytes)
                    archive.addfile(tarfile.TarInfo(".complete"))
            command.end_input()
        except CommandEnded as error:
            raise _failed(connection, "store the files", command.errors()) from error
        done = command.finish(silence=_SECONDS_WITHOUT_PROGRESS)
        if done.status != 0:
            raise _failed(connection, "store the files", done.errors)
        stage.result = size(counted_bytes.bytes)
    return Copied(counted_bytes.files, counted_bytes.bytes, target)


def fetch_files(
    connection: Connection, source: str, target: Path, events: Events = SILENT
) -> Copied:
    """Copy a file or folder of the device to this host. The target appears when all has arrived."""
    checked = _checked(source).rstrip("/")
    name = PurePosixPath(checked).name
    if name in ("", ".", "..", "~"):
        raise UsageError(
            f"{source!r} does not name a file or folder", hint="write its last name out"
        )
    place = target / name if target.is_dir() else target
    if place.exists():
        raise UsageError(f"{place} exists already", hint="give another name, or remove it first")
    words = ("sh", "-c", _PACK, connection.stream_name, checked, name)
    with (
        scratch_directory(place.parent) as scratch,
        events.stage(f"fetch {name} from {connection.name}") as stage,
        connection.command(words, title="tar") as command,
    ):
        counted_bytes = _Counted(stage)
        try:
            with tarfile.open(fileobj=_Receiving(command), mode="r|") as archive:
                for member in archive:
                    _extract(archive, member, scratch)
                    counted_bytes.add(member)
        except tarfile.TarError as error:
            done = command.finish(silence=_SECONDS_WITHOUT_PROGRESS)
            why = done.errors or (f"what came is no archive: {error}",)
            raise _failed(connection, f"read {source}", why) from error
        done = command.finish(silence=_SECONDS_WITHOUT_PROGRESS)
        if done.status != 0 or not os.path.lexists(scratch / name):
            raise _failed(connection, f"read {source}", done.errors)
        with storage_errors("keep the files", place):
            (scratch / name).rename(place)
        stage.result = size(counted_bytes.bytes)
    return Copied(counted_bytes.files, counted_bytes.bytes, str(place))


class _Counted:
    """Counts what travels, and tells the stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.files = 0
        self.bytes = 0

    def add(self, member: tarfile.TarInfo) -> None:
        if not member.isdir():
            self.files += 1
        self.bytes += member.size
        self._stage.advance(member.size)


class _Sending(io.RawIOBase):
    """A command's input as a file."""

    def __init__(self, command: RemoteCommand) -> None:
        self._command = command

    def write(self, data: Any) -> int:
        self._command.send(data, _SECONDS_WITHOUT_PROGRESS)
        return len(data)


class _Receiving(io.RawIOBase):
    """A command's output as a file."""

    def __init__(self, command: RemoteCommand) -> None:
        self._command = command

    def read(self, most: int = -1) -> bytes:
        wanted = most if most >= 0 else _BLOCK
        data = b""
        while len(data) < wanted:
            try:
                data += self._command.read_some(wanted - len(data))
            except CommandEnded:
                break
        return data


def _name_of(source: Path) -> str:
    name = source.absolute().name or source.resolve().name
    if not name or not os.path.lexists(source):
        raise UsageError(f"there is no file {str(source)!r}", hint="check the name")
    return name


def _checked(path: str) -> str:
    if not path or any(ord(character) < 32 for character in path):
        raise UsageError(f"{path!r} is no path on a device", hint="give one such as /home/me/data")
    return path if path.startswith(("/", "~", ".")) else f"./{path}"


def _bytes_in(source: Path) -> int:
    if not source.is_dir():
        return source.stat().st_size
    return sum(
        file.lstat().st_size
        for file in source.rglob("*")
        if file.is_file() and not file.is_symlink()
    )


def _add(archive: tarfile.TarFile, source: Path, name: str, sent: _Counted) -> None:
    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            return None  # sockets, pipes and devices mean nothing elsewhere
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        sent.add(member)
        return member

    archive.add(source.resolve() if source.is_symlink() else source, name, filter=anonymous)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Extract one member; StorageError or DeviceError for one that would leave the folder."""
    if not hasattr(tarfile, "data_filter"):
        raise EdgekitError(
            "this Python cannot unpack an archive safely", hint="update Python (3.10.12, 3.11.4)"
        )
    try:
        archive.extract(member, folder, filter="data")
    except tarfile.FilterError as error:
        raise DeviceError(
            f"the device sent a file that would lie elsewhere: {error}",
            hint="name the folder that really holds the files",
        ) from error
    except OSError as error:
        raise StorageError(
            f"cannot keep {member.name}: {error.strerror}", hint="check the disk of this host"
        ) from error


def _failed(connection: Connection, what: str, errors: Sequence[str]) -> DeviceError:
    why = errors[-1] if errors else "it ended early"
    return DeviceError(
        f"{connection.name} could not {what}: {why}",
        hint="check the path, its permissions and the space on the device",
        details=tuple(errors[-12:-1]),
    )
