"""Reads where a cluster is: an address, hosts that SSH reaches, or this host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import BadInputError, UsageError
from edgekit.base.files import storage_errors
from edgekit.base.options import option

DEFAULT_PORT = 8786
"""Dask's own."""
_ADDRESS = re.compile(r"(?:tls://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%-]*")
_MOST_WORKERS = 4096
_LARGEST = 1_000_000


@dataclass(frozen=True)
class Running:
    """A cluster that runs already."""

    address: str


@dataclass(frozen=True)
class Local:
    """Workers of this host, started for one command."""

    workers: int
    lanes: int = 1
    """The tasks of each worker at the same time."""


@dataclass(frozen=True)
class Host:
    """A host whose workers are started over SSH."""

    name: str
    lanes: int | None = None
    """The tasks at the same time; None is one for each core."""
    program: str = "edgekit"
    """The path of edgekit on the host."""


@dataclass(frozen=True)
class Remote:
    """Hosts whose workers are started over SSH for one command."""

    hosts: tuple[Host, ...]


Place = Running | Local | Remote


def parse_place(text: str, start: Path) -> Place:
    """Parse `tls://HOST:PORT`, `ssh:FILE` or `local:N`. Files are relative to `start`."""
    kind, _, rest = text.partition(":")
    if kind == "local" and rest.isascii() and rest.isdigit() and 1 <= int(rest) <= _MOST_WORKERS:
        return Local(int(rest))
    if kind == "ssh" and rest:
        return Remote(_read_hosts(start / Path(rest).expanduser()))
    if kind != "local" and (found := _ADDRESS.fullmatch(text)) and 0 < int(found[2]) < 1 << 16:
        return Running(f"tls://{found[1]}:{found[2]}")
    raise UsageError(
        f"{option('cluster', text[:200])} names no cluster",
        hint="write tls://HOST:PORT, ssh:FILE with a host in each line, or local:N"
        + (": connections without TLS are refused" if kind == "tcp" else ""),
    )


def _read_hosts(file: Path) -> tuple[Host, ...]:
    """Read lines of `HOST [LANES] [PROGRAM]`."""
    with storage_errors("read the hosts", file), file.open("rb") as stream:
        text = stream.read(_LARGEST).decode(errors="replace")
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        lanes = words[1] if len(words) > 1 else None
        is_number = lanes is None or (
            lanes.isascii() and lanes.isdigit() and 1 <= int(lanes) <= _MOST_WORKERS
        )
        if len(words) > 3 or not _HOST.fullmatch(words[0]) or not is_number:
            raise BadInputError(
                f"line {number} of {file} names no host: {line[:80]!r}",
                hint="write HOST, or HOST LANES, or HOST LANES PATH-OF-EDGEKIT",
            )
        hosts.append(Host(words[0], None if lanes is None else int(lanes), *words[2:]))
    if not hosts:
        raise BadInputError(f"{file} names no host", hint="write one in each line")
    return tuple(hosts)
