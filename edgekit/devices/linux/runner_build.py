"""Libraries that a device compiles itself, from source that comes with the model, against the
device's headers. A library is reused if source, compiler and headers are the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edgekit.backends.base import HasRunner
from edgekit.backends.registry import load_backend
from edgekit.base.errors import BuildError, DeviceError, EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import printable
from edgekit.bundle.manifest_runners import runner_backend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgekit.backends.base import DeviceBuild
    from edgekit.devices.linux.connection import Connection

LONGEST_BUILD = 1800.0
"""Seconds. A slow board takes half a minute."""
_SILENCE = 120.0
_SHOWN_LINES = 12
_HEADER = re.compile(r"[A-Za-z0-9_.]{1,60}")

# All headers are in the key, in case headers of two versions are mixed. The compiler prints nothing
# while it works, so a loop does; its `sleep` must not keep our output open.
_COMPILE = r"""
LC_ALL=C; export LC_ALL
umask 077
cd "$1" && [ -f "$2/$3" ] || { echo "its source is gone" >&2; exit 1; }
root=$1 folder=$2 source=$3 library=$4 wanted=$5 folders=$6
eval "named=\${$7:-}"
say() { printf 'edgekit %s %s\n' "$1" "$2"; }
compiler=
for name in ${CXX:-} g++ c++ clang++; do
  if command -v "$name" >/dev/null 2>&1; then compiler=$name; break; fi
done
[ -n "$compiler" ] || { say lacks compiler; exit 0; }
set --
IFS=:
for place in $named; do [ -n "$place" ] && set -- "$@" "$place"; done
unset IFS
for place in $folders; do
  [ -d "$place" ] && set -- "$@" "$place"
done
missing= headers= options=
for name in $wanted; do
  found=
  for place in "$@"; do
    [ -f "$place/$name" ] && found=$place && break
  done
  if [ -z "$found" ]; then missing="$missing $name"; continue; fi
  headers="$headers$found/$name
"
  case "$options" in *"$found
"*) ;; *) options="$options$found
";; esac
done
[ -z "$missing" ] || { say lacks "$missing"; exit 0; }
IFS='
'
set --
for place in $options; do set -- "$@" -I "$place"; done
set -- -std=c++17 -O2 -fPIC -shared -fvisibility=hidden -Wl,--strip-all "$@"
key=$({ "$compiler" --version | head -n 1; echo "$*"; cat "$folder/$source" $headers; } |
  sha256sum) || exit 1
key=${key%% *}
numbers='s/^#define *[A-Z_]*_\(MAJOR\|MINOR\|PATCH\)\(_ENTERPRISE\)* *\([0-9][0-9]*\).*/\3/p'
version=$(cat $headers | sed -n "$numbers" | head -n 3 | tr '\n' '.')
unset IFS
say version "${version%.}"
made=objects/runner-$key.so log=$folder/${source%.cc}.log
if [ -s "$made" ] && [ -f "$folder/$library" ] && cmp -s "$made" "$folder/$library"; then
  say there; exit 0
fi
if [ ! -s "$made" ]; then
  say compiles "$compiler"
  part=$made.part
  ( while sleep 2 </dev/null >/dev/null 2>&1; do say works; done ) &
  ticker=$!
  "$compiler" "$@" -o "$part" "$folder/$source" -ldl >"$log" 2>&1 </dev/null
  code=$?
  kill $ticker 2>/dev/null
  if [ $code -ne 0 ]; then
    rm -f "$part"; say failed $code; say log "$root/$log"; head -c 20000 "$log"; exit 0
  fi
  chmod 700 "$part" || exit 1
  sync "$part" 2>/dev/null || sync 2>/dev/null
  mv -f "$part" "$made" || exit 1
fi
rm -f "$folder/.$library"
ln "$made" "$folder/.$library" 2>/dev/null || cp -p "$made" "$folder/.$library" || exit 1
mv -f "$folder/.$library" "$folder/$library" || exit 1
say done
"""


_SOURCE = re.compile(r"edgekit_[a-z0-9_]{1,40}\.cc")


@dataclass(frozen=True)
class RunnerSource:
    """The source of a library that a device compiles, and its purpose."""

    folder: str
    """Folder of the model, within edgekit's on the device."""
    source: str
    """Name of the source in that folder."""
    library: str
    regions: str
    """Layers that it runs, in words; empty if unknown."""


def sources_among(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sources of compiled libraries among a model's files on the device."""
    return tuple(name for name in names if _SOURCE.fullmatch(name))


def library_of(source: str) -> str:
    return f"lib{PurePosixPath(source).stem}.so"


def compile_on_device(
    connection: Connection, root: str, wanted: RunnerSource, events: Events = SILENT
) -> None:
    """Compile the library in the model's folder; DeviceError or BuildError if that fails."""
    backend = load_backend(runner_backend(wanted.source))
    if not isinstance(backend, HasRunner):
        raise BuildError(
            f"the backend {backend.name} does not say how a device compiles {wanted.source}",
            hint="build the model again, with the package that brings the backend",
        )
    build, title = backend.device_build, backend.title
    answer = _Answer(title)
    words = (
        *("sh", "-c", _COMPILE, "edgekit", root, wanted.folder, wanted.source, wanted.library),
        *(" ".join(build.headers), " ".join(build.folders), build.variable),
    )
    with events.stage(f"compile for {title} on {connection.name}") as stage:

        def hear(line: str) -> None:
            if answer.take(line):
                stage.advance(0, answer.doing)

        done = connection.run(words, timeout=LONGEST_BUILD, silence=_SILENCE, on_line=hear)
        stage.result = answer.result
        if not answer.done or done.status:
            raise _failure(connection.name, answer, wanted, build, done.errors)


class _Answer:
    """The script's messages; the compiler's own lines come last."""

    def __init__(self, title: str) -> None:
        self.title = title
        """The vendor's library."""
        self.doing = ""
        self.result = ""
        self.version = ""
        self.missing: list[str] = []
        self.lacks_compiler = False
        self.failed = False
        self.done = False
        self.log = ""
        self.lines: list[str] = []

    def take(self, line: str) -> bool:
        """Read a line; True if it is a message of the script."""
        word, _, rest = line.removeprefix("edgekit ").partition(" ")
        if not line.startswith("edgekit "):
            if self.failed and line.strip():
                self.lines.append(printable(line)[:400])
            return False
        if word == "lacks" and rest == "compiler":
            self.lacks_compiler = True
        elif word == "lacks":
            self.missing = [name for name in rest.split() if _HEADER.fullmatch(name)]
        elif word == "version":
            self.version = rest[:20]
        elif word == "compiles":
            self.doing = f"with {rest[:40]}, against {self.title} {self.version}"
            self.result = f"{self.title} {self.version}"
        elif word == "there":
            self.done, self.result = True, "it exists already"
        elif word == "done":
            self.done, self.result = True, self.result or "it was compiled before"
        elif word == "failed":
            self.failed = True
        elif word == "log":
            self.log = rest[:300]
        return True


def _failure(
    name: str, answer: _Answer, wanted: RunnerSource, build: DeviceBuild, errors: Sequence[str]
) -> EdgekitError:
    title = answer.title
    or_on_host = (
        f"or build with the board's headers on the host: set {build.variable} to their folders, or "
        "give the toolchain a sysroot that has them"
    )
    if answer.lacks_compiler:
        return DeviceError(
            f"{name} has no C++ compiler, which the {title} runner needs",
            hint=f"install one on the device (sudo apt-get install g++), {or_on_host}",
        )
    if answer.missing:
        return DeviceError(
            f"{name} lacks {', '.join(answer.missing)}, which the {title} runner needs",
            hint=f"{build.install}, {or_on_host}",
        )
    if not answer.failed:
        why = errors[-1].rpartition(": ")[2] if errors else "it printed nothing"
        return DeviceError(
            f"{name} could not compile the {title} runner: {printable(why)[:200].lower()}",
            hint="check the disk, owner and permissions of edgekit's folder on the device",
            details=tuple(errors[-_SHOWN_LINES:]),
        )
    reason = next((line for line in answer.lines if "error" in line), "it printed nothing")
    regions = f" for the region of {wanted.regions}" if wanted.regions else ""
    return BuildError(
        f"the {title} runner{regions} does not compile on {name} against {title} "
        f"{answer.version}: {reason}",
        hint=f"{build.check}; the compiler's output is in {answer.log} on the device",
        details=tuple(answer.lines[:_SHOWN_LINES]),
    )
