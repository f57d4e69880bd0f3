"""The first look at a device: what it is and whether edgekit can keep files on it. One round trip,
with what every Linux has (a POSIX shell and a few small programs), before anything is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.base.errors import DeviceError
from edgekit.base.measurer import Measurer, measurer_by
from edgekit.base.wording import size
from edgekit.profiles.architecture import architecture_of_machine

if TYPE_CHECKING:
    from edgekit.devices.linux.connection import Connection

FOLDER = ".local/share/edgekit"
"""Folder in the device's home folder that holds everything of edgekit."""

_LONGEST_ANSWER = 4 << 20
PLATFORM = (
    "/proc/device-tree/compatible",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/sys/bus/event_source/devices/armv8*/events/cpu_cycles",
    "/sys/bus/event_source/devices/armv8*/events/l1d_cache_refill",
)
"""Files that tell whether a machine is emulated; `agent/src/attend.cc` reads the same."""

FIND_ROOT = """\
case "$1" in /*) root=$1;; *) root=${HOME:-$(pwd)}/$1;; esac
"""

_SCRIPT = (
    r"""
LC_ALL=C; export LC_ALL
say() { printf '%s %s\n' "$1" "$2"; }
"""
    + FIND_ROOT
    + r"""say root "$root"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say hostname "$(uname -n)"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1)
case "$glibc" in *[0-9].[0-9]*) ;; *)
  for loader in /lib/ld-linux-*.so.* /lib64/ld-linux-*.so.*; do
    [ -x "$loader" ] && glibc=$("$loader" --version 2>/dev/null | head -n 1) && break
  done;;
esac
say glibc "$glibc"
for tool in sha256sum flock mkdir mv ln df cat tee; do
  command -v "$tool" >/dev/null 2>&1 && say tool "$tool"
done
umask 077
if trouble=$(mkdir -p "$root/objects" "$root/models" "$root/agents" "$root/runs" 2>&1); then
  for word in $(df -Pk "$root" 2>/dev/null | tail -n 1); do
    case "$word" in *%) say free "$before"; break;; esac
    before=$word
  done
  probe=$root/.probe-$$  # not in runs, which the next lease sweeps
  if trouble=$( { printf '#!/bin/sh\nexit 0\n' | cat >"$probe"; } 2>&1 ) && [ -s "$probe" ]; then
    chmod 700 "$probe"
    if trouble=$("$probe" 2>&1); then say place ok; else say place "noexec $trouble"; fi
  else
    say place "unwritable ${trouble:-No space left on device}"
  fi
  rm -f "$probe"
else
  say place "unwritable $trouble"
fi
cat /proc/meminfo 2>/dev/null | sed -n 's/^MemAvailable: *\([0-9]*\) kB/memory \1/p'
echo cpuinfo
cat /proc/cpuinfo
"""
)


@dataclass(frozen=True)
class Processor:
    machine: str
    """The kernel's name for the architecture: aarch64, x86_64, armv8l."""
    cpuinfo: str

    @property
    def arch(self) -> str:
        """The architecture; the kernel's name for an unknown one."""
        known = architecture_of_machine(self.machine)
        return self.machine if known is None else known.name


@dataclass(frozen=True)
class DeviceFacts(Processor):
    """Facts that a device reported. Unknown is None or empty, never a guess."""

    root: str
    """Folder of edgekit's files."""
    kernel: str
    hostname: str
    glibc: tuple[int, ...]
    tools: frozenset[str]
    free: int | None
    """Free bytes on the root's file system."""
    memory_available: int | None
    trouble: str | None
    """Reason why no files can be kept or run in the root."""


def ask_device(connection: Connection, directory: str | None = None) -> DeviceFacts:
    done = connection.run(
        ("sh", "-c", _SCRIPT, "edgekit", directory or FOLDER),
        timeout=30,
        most_output=_LONGEST_ANSWER,
    )
    facts = parse_answer(done.output)
    if facts is None:
        raise DeviceError(
            f"{connection.name} did not say what it is: it runs no POSIX shell, or its start-up "
            "files end the session",
            hint=f"try `ssh … sh -c 'uname -m'` by hand; it said {done.output[:80]!r}",
            details=done.errors[-12:],
        )
    return facts


def measurer_of(connection: Connection) -> Measurer:
    """Ask a device what measures on it."""
    words = ("sh", "-c", "cat $* 2>/dev/null; :", "edgekit", *PLATFORM, "/proc/cpuinfo")
    text = connection.run(words, timeout=30, most_output=_LONGEST_ANSWER).output
    return measurer_by(text, text)


def parse_answer(text: str) -> DeviceFacts | None:
    """Read the script's answer after any output of start-up files; None if it is incomplete."""
    head, separator, cpuinfo = text.partition("\ncpuinfo\n")
    values: dict[str, str] = {}
    tools = set()
    for line in head.splitlines():
        key, _, value = line.partition(" ")
        if key == "tool":
            tools.add(value)
        else:
            values[key] = value.strip()
    if not separator or not values.get("root", "").startswith("/") or "machine" not in values:
        return None
    return DeviceFacts(
        root=values["root"],
        machine=values["machine"],
        kernel=values.get("kernel", ""),
        hostname=values.get("hostname", ""),
        glibc=_version(values.get("glibc", "")),
        tools=frozenset(tools),
        free=_kilobytes(values.get("free", "")),
        memory_available=_kilobytes(values.get("memory", "")),
        trouble=_trouble(values.get("place", "unwritable"), values["root"]),
        cpuinfo=cpuinfo,
    )


def check_place(facts: DeviceFacts, name: str, needed: int = 0) -> None:
    """Raise DeviceError if the device has no place, or no room, for `needed` bytes of files."""
    if facts.trouble is not None:
        raise DeviceError(
            f"{name} has no place for edgekit's files: {facts.trouble}",
            hint='free some space on it, or name a better folder with directory = "/PATH" in '
            f"[devices.{name}]",
        )
    missing = sorted({"sha256sum", "mkdir", "mv", "cat", "tee"} - facts.tools)
    if missing:
        raise DeviceError(
            f"{name} lacks {', '.join(missing)}",
            hint="install coreutils or busybox on the device",
        )
    if facts.free is not None and needed > facts.free:
        raise DeviceError(
            f"{name} has {size(facts.free)} free in {facts.root}, and {size(needed)} are needed",
            hint=f"free some space on it (edgekit device clean {name}), or name another "
            f'folder with directory = "/PATH" in [devices.{name}]',
        )


def _trouble(place: str, root: str) -> str | None:
    kind, _, words = place.partition(" ")
    if kind == "ok":
        return None
    if kind == "noexec":
        return f"nothing may be run from {root} (mounted noexec?): {words.rpartition(': ')[2]}"
    reason = words.rpartition(": ")[2].strip() or "it can't be written to"
    return f"{root}: {reason[:1].lower()}{reason[1:]}"


def _version(text: str) -> tuple[int, ...]:
    """Return the last version in a text that names glibc or GNU; other C libraries have none."""
    if not re.search(r"glibc|gnu libc|libc", text, re.IGNORECASE) or "musl" in text.lower():
        return ()
    found = re.findall(r"(?<![\w.])([0-9]{1,3})\.([0-9]{1,3})(?!\w)", text)
    return (int(found[-1][0]), int(found[-1][1])) if found else ()


def _kilobytes(text: str) -> int | None:
    return int(text) * 1024 if re.fullmatch(r"[0-9]{1,15}", text) else None
