"""Work on a device apart from models: check it, list its versions, read its log, tidy it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edgekit.base.errors import DeviceError
from edgekit.base.events import SILENT, Events
from edgekit.base.wording import size
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.device_log import ADD_TO_LOG, LOG, OLDER_LOG, holder, log_line
from edgekit.devices.linux.hostkeys import Ask, KnownHosts
from edgekit.devices.linux.lease import lease
from edgekit.devices.linux.probe import DeviceFacts, ask_device, check_place
from edgekit.devices.linux.versions import CURRENT_VERSION, SWEEP_OBJECTS
from edgekit.project.devices import LinuxEntry

# An application may load the current version, so it stays.
_CLEAN = f"""\
LC_ALL=C; export LC_ALL
{ADD_TO_LOG}{CURRENT_VERSION}{SWEEP_OBJECTS}
cd "$1" || exit 1
keep=$2
used() {{ set -- $(du -sk . 2>/dev/null); echo "${{1:-0}}"; }}
before=$(used)
[ "$3" != all ] || rm -rf deployments {LOG} {OLDER_LOG}
current=$(for folder in deployments/*; do
  [ ! -d "$folder" ] || ( cd "$folder" && current_version )
done)
for kind in models agents; do
  count=0
  ls -1t "$kind" 2>/dev/null | while read -r name; do
    count=$((count + 1))
    [ "$count" -gt "$keep" ] || continue
    [ "$kind" = agents ] || case " $(echo $current) " in *" $name "*) continue;; esac
    rm -f deployments/*/"$name".version
    rm -rf "$kind/$name"; echo "removed $kind"
  done
done
sweep_objects
[ "$3" = all ] || add_to_log "$4" || :
echo "kilobytes $before $(used)"
"""


@dataclass(frozen=True)
class CheckReport:
    """A device's state when it was checked."""

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
    """Free bytes."""
    memory_available: int | None

    @property
    def heading(self) -> str:
        return f"{self.name} is ready"

    def facts(self) -> list[tuple[str, object]]:
        return [
            ("board", self.board),
            ("address", self.address),
            ("host key", self.fingerprint),
            ("machine", f"{self.machine}, Linux {self.kernel}, glibc {self.glibc or '-'}"),
            ("files in", self.folder),
            ("free space", None if self.free is None else size(self.free)),
            (
                "free memory",
                None if self.memory_available is None else size(self.memory_available),
            ),
        ]


@dataclass(frozen=True)
class CleanReport:
    name: str
    models: int
    """Number of removed models."""
    agents: int
    freed: int
    """Freed bytes."""


@contextmanager
def visit(
    entry: LinuxEntry,
    *,
    wait: float | None,
    known_hosts: KnownHosts | None = None,
    events: Events = SILENT,
) -> Iterator[tuple[Connection, DeviceFacts]]:
    """Connect to a device, check it, and hold it for the block."""
    with connect(entry, known_hosts=known_hosts) as connection:
        facts = ask_device(connection, entry.directory)
        check_place(facts, entry.name)
        with lease(connection, facts.root, wait=wait, user=holder(), events=events):
            yield connection, facts


def check_device(
    entry: LinuxEntry,
    *,
    arch: str | None = None,
    ask: Ask | None = None,
    fingerprint: str | None = None,
    known_hosts: KnownHosts | None = None,
) -> CheckReport:
    """Log in and check the device; DeviceError for anything that would stop a deployment.

    `arch` is the board's; a device of another architecture is refused.
    """
    with connect(entry, known_hosts=known_hosts, ask=ask, fingerprint=fingerprint) as connection:
        facts = ask_device(connection, entry.directory)
        if arch is not None and arch != facts.arch:
            raise DeviceError(
                f"{entry.name} has a CPU of {facts.machine}, but the board {entry.board} one of "
                f"{arch}",
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
    connection: Connection, facts: DeviceFacts, *, keep: int = 0, everything: bool = False
) -> CleanReport:
    """Remove edgekit's files from a device that is held, except the `keep` models and agents used
    last and current versions. With `everything`, remove those and the log too."""
    line = log_line("tidied up", message=f"all but the {keep} models and agents used last")
    words = ("sh", "-c", _CLEAN, "edgekit", facts.root)
    extent = "all" if everything else "rest"
    done = connection.run((*words, str(keep), extent, line), timeout=300)
    lines = done.output.splitlines()
    sizes = lines[-1].split() if lines else []
    if done.status != 0 or len(sizes) != 3 or sizes[0] != "kilobytes":
        raise DeviceError(
            f"{connection.name} could not be tidied up",
            hint=f"look at {facts.root} on the device",
            details=done.errors[-12:],
        )
    freed = max(int(sizes[1]) - int(sizes[2]), 0) * 1024
    return CleanReport(
        connection.name, lines.count("removed models"), lines.count("removed agents"), freed
    )
