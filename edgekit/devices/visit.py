"""What can be done with a device apart from running models: look at it, and tidy it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.devices.connection import Connection, connect
from edgekit.devices.lease import lease
from edgekit.devices.probe import DeviceFacts, ask_device, check_place
from edgekit.errors import DeviceError

if TYPE_CHECKING:
    from edgekit.device_entry import DeviceEntry
    from edgekit.devices.hostkeys import Ask, KnownHosts

_CLEAN = """\
LC_ALL=C; export LC_ALL
cd "$1" || exit 1
used() { set -- $(du -sk . 2>/dev/null); echo "${1:-0}"; }
before=$(used)
keep=$2
for kind in models agents; do
  ls -1t "$kind" 2>/dev/null | tail -n +$((keep + 1)) | while read -r name; do
    rm -rf "$kind/$name"; echo "removed $kind"
  done
done
for object in objects/*; do
  [ -f "$object" ] || continue
  case "$object" in *.part) rm -f "$object"; continue;; esac
  name=${object#objects/}; links=$(ls -ld "$object" | { read -r mode links rest; echo "$links"; })
  [ "$links" -gt 1 ] || rm -f "$object"
done
echo "kilobytes $before $(used)"
"""


@dataclass(frozen=True)
class CheckReport:
    """A device as it was just found."""

    name: str
    board: str
    address: str
    fingerprint: str
    machine: str
    kernel: str
    hostname: str
    glibc: str | None
    folder: str
    free: int | None
    """Bytes."""
    memory_available: int | None


@dataclass(frozen=True)
class CleanReport:
    name: str
    models: int
    """How many were removed."""
    agents: int
    freed: int
    """Bytes."""


@contextmanager
def visit(
    entry: DeviceEntry, *, wait: float | None, known_hosts: KnownHosts | None = None
) -> Iterator[tuple[Connection, DeviceFacts]]:
    """A device that is connected, sound, and ours for the time of the block."""
    with connect(entry, known_hosts=known_hosts) as connection:
        facts = ask_device(connection, entry.directory)
        check_place(facts, entry.name)
        with lease(connection, facts.root, wait=wait):
            yield connection, facts


def check_device(
    entry: DeviceEntry,
    *,
    arch: str | None = None,
    ask: Ask | None = None,
    fingerprint: str | None = None,
    known_hosts: KnownHosts | None = None,
) -> CheckReport:
    """Log in and look around; DeviceError for whatever would stop a deployment.

    `arch` is the board's; a device of another one is refused.
    """
    with connect(entry, known_hosts=known_hosts, ask=ask, fingerprint=fingerprint) as connection:
        facts = ask_device(connection, entry.directory)
        if arch is not None and arch != facts.machine:
            raise DeviceError(
                f"{entry.name} is a {facts.machine} machine, and a {entry.board} is an {arch} one",
                hint="name the board that it is; `edgekit boards` lists them",
            )
        check_place(facts, entry.name)
        return CheckReport(
            name=entry.name,
            board=entry.board,
            address=connection.address,
            fingerprint=connection.fingerprint,
            machine=facts.machine,
            kernel=facts.kernel,
            hostname=facts.hostname,
            glibc=".".join(str(part) for part in facts.glibc) or None,
            folder=facts.root,
            free=facts.free,
            memory_available=facts.memory_available,
        )


def clean_device(
    entry: DeviceEntry, *, keep: int = 0, known_hosts: KnownHosts | None = None
) -> CleanReport:
    """Remove what edgekit left on a device but for the `keep` models and agents used last."""
    with visit(entry, wait=None, known_hosts=known_hosts) as (connection, facts):
        done = connection.run(("sh", "-c", _CLEAN, "edgekit", facts.root, str(keep)), timeout=300)
        lines = done.output.splitlines()
        sizes = lines[-1].split() if lines else []
        if done.status != 0 or len(sizes) != 3 or sizes[0] != "kilobytes":
            raise DeviceError(
                f"{entry.name} could not be tidied up",
                hint=f"look at {facts.root} over there",
                details=done.errors[-12:],
            )
        freed = max(int(sizes[1]) - int(sizes[2]), 0) * 1024
        return CleanReport(
            entry.name, lines.count("removed models"), lines.count("removed agents"), freed
        )
