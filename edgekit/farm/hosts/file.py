"""The hosts that joined the farm: farm.toml in the user's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgekit.base.decode import Check
from edgekit.base.errors import UsageError
from edgekit.base.options import option
from edgekit.base.paths import config_dir
from edgekit.base.wording import did_you_mean
from edgekit.profiles.reader import NAME_EXPECTED, NAME_PATTERN, TableReader, matching, show
from edgekit.project import user_file
from edgekit.project.devices import TARGET_EXPECTED, SshEntry, is_target, parse_target

_PATH = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_HEADER = f"""\
# The hosts whose farms `edgekit farm join` added to this one.
schema = {user_file.SCHEMA_VERSION}
"""


@dataclass(frozen=True)
class FarmHost:
    """A host with a farm of its own."""

    name: str
    address: Annotated[str, Check(TARGET_EXPECTED, is_target)]
    """user@host:port, or a Host of ~/.ssh/config."""
    key: Annotated[str, matching(_PATH, "the path of a key file")] | None = None
    proxy: Annotated[str, Check(TARGET_EXPECTED, is_target)] | None = None
    program: Annotated[str, matching(_PATH, "a program")] | None = None
    """The path of edgekit on the host, if it is not on the PATH of the user who logs in."""

    @property
    def entry(self) -> SshEntry:
        """The device entry that SSH connects with."""
        place = parse_target(self.address)
        return SshEntry(
            self.name, "local", place.host, place.user, place.port, self.key, self.proxy
        )


def hosts_file() -> Path:
    return config_dir() / "farm.toml"


def make_host(
    address: str,
    *,
    name: str | None = None,
    key: Path | None = None,
    proxy: str | None = None,
    program: str | None = None,
) -> FarmHost:
    """Check and normalize what the user entered; UsageError if it is invalid."""
    place = parse_target(address)
    chosen = name or name_from(place.host)
    if not NAME_PATTERN.fullmatch(chosen):
        raise UsageError(
            f"{show(chosen)} cannot be a host's name in the farm",
            hint=f"choose {NAME_EXPECTED}: {option('name', 'NAME')}",
        )
    jump = str(parse_target(proxy)) if proxy is not None else None
    key_file = str(key.expanduser().absolute()) if key is not None else None
    for text in (key_file, program):
        if text is not None and not _PATH.fullmatch(text):
            raise UsageError(f"{show(text)} cannot be a file's name", hint="rename it")
    return FarmHost(chosen, str(place), key_file, jump, program)


def name_from(host: str) -> str:
    """Derive a name: attic from attic.lab.example, 10-0-0-21 from 10.0.0.21."""
    is_number = re.fullmatch(r"[0-9.]+|.*:.*", host) is not None
    short = host if is_number else host.split(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-")


def known_hosts_of_farm(file: Path | None = None) -> dict[str, FarmHost]:
    path = file or hosts_file()
    text = user_file.read_text(path)
    return user_file.parse(path, text, _hosts, "docs/farm.md") if text.strip() else {}


def find_host(name: str, hosts: Mapping[str, FarmHost]) -> FarmHost:
    if name in hosts:
        return hosts[name]
    raise UsageError(
        f"no host {name!r} has joined the farm",
        hint=did_you_mean(name, hosts, "`edgekit farm status` lists the hosts"),
    )


def remember_host(host: FarmHost, *, replace: bool = False, file: Path | None = None) -> Path:
    path = file or hosts_file()
    with user_file.editing(path, "remember the host"):
        hosts = known_hosts_of_farm(path)
        if host.name in hosts and hosts[host.name] != host and not replace:
            raise UsageError(
                f"a host {host.name} has joined already: {hosts[host.name].address}",
                hint=f"choose another {option('name')}, or add {option('force')} to replace it",
            )
        values = {key: value for key, value in vars(host).items() if key != "name"}
        text = user_file.read_text(path) or _HEADER
        user_file.edit_table(path, text, ("hosts", host.name), values)
    return path


def forget_host(name: str, file: Path | None = None) -> FarmHost:
    """Remove a host and return its entry; UsageError if it has not joined."""
    path = file or hosts_file()
    with user_file.editing(path, "forget the host"):
        hosts = known_hosts_of_farm(path)
        host = find_host(name, hosts)
        user_file.edit_table(path, user_file.read_text(path), ("hosts", name), None)
    return host


def _hosts(reader: TableReader) -> dict[str, FarmHost]:
    hosts: dict[str, FarmHost] = {}
    if reader.has("hosts"):
        tables = reader.table("hosts")
        for name in tables.names():
            if not NAME_PATTERN.fullmatch(name):
                tables.raw(name)
                tables.complain(name, show(name), NAME_EXPECTED)
            elif host := tables.table(name).rest(FarmHost, name=name):
                hosts[name] = host
        tables.finish()
    return hosts
