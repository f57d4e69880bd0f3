"""The other hosts whose farms belong to this one: farm.toml in the user's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import ProjectError, UsageError
from edgekit.base.files import exclusive_lock, storage_errors, write_atomically
from edgekit.base.paths import config_dir
from edgekit.base.quoting import toml_value
from edgekit.base.toml_source import TomlError, parse_toml
from edgekit.base.wording import did_you_mean
from edgekit.profiles.reader import (
    NAME_EXPECTED,
    NAME_PATTERN,
    Problem,
    TableReader,
    show,
    syntax_problem,
)
from edgekit.project.devices import TARGET_EXPECTED, DeviceEntry, is_target, parse_target

SCHEMA_VERSION = 1
_PATH = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_HEADER = f"""\
# The hosts whose farms `edgekit farm join` took into this one.
schema = {SCHEMA_VERSION}
"""


@dataclass(frozen=True)
class FarmHost:
    """Another machine with a farm of its own."""

    name: str
    address: str
    """user@host:port, or a Host of ~/.ssh/config."""
    key: str | None = None
    proxy: str | None = None
    program: str | None = None
    """edgekit over there, where it is not on the PATH of whoever logs in."""

    @property
    def entry(self) -> DeviceEntry:
        """How it is logged in to: as any device."""
        place = parse_target(self.address)
        return DeviceEntry(
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
    """A host from what a person says; UsageError where that can't be."""
    place = parse_target(address)
    called = name or name_from(place.host)
    if not NAME_PATTERN.fullmatch(called):
        raise UsageError(
            f"{show(called)} can't be a host's name in the farm",
            hint=f"choose {NAME_EXPECTED}: --name NAME",
        )
    through = str(parse_target(proxy)) if proxy is not None else None
    where = str(key.expanduser().absolute()) if key is not None else None
    for text in (where, program):
        if text is not None and not _PATH.fullmatch(text):
            raise UsageError(f"{show(text)} can't be a file's name", hint="rename it")
    return FarmHost(called, str(place), where, through, program)


def name_from(host: str) -> str:
    """attic of attic.lab.example, 10-0-0-21 of 10.0.0.21."""
    is_number = re.fullmatch(r"[0-9.]+|.*:.*", host) is not None
    short = host if is_number else host.split(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-")


def known_hosts_of_farm(file: Path | None = None) -> dict[str, FarmHost]:
    place = file or hosts_file()
    return _parse(place, _text(place))


def find_host(name: str, hosts: Mapping[str, FarmHost]) -> FarmHost:
    if name in hosts:
        return hosts[name]
    raise UsageError(
        f"no host {name!r} has joined the farm",
        hint=did_you_mean(name, hosts, "`edgekit farm status` shows those that have"),
    )


def remember_host(host: FarmHost, *, replace: bool = False, file: Path | None = None) -> Path:
    place = file or hosts_file()
    with storage_errors("remember the host", place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(place.with_suffix(".lock")):
            hosts = known_hosts_of_farm(place)
            if host.name in hosts and hosts[host.name] != host and not replace:
                raise UsageError(
                    f"a host {host.name} has joined already: {hosts[host.name].address}",
                    hint="choose another --name, or add --force to replace it",
                )
            _write(place, {**hosts, host.name: host})
    return place


def forget_host(name: str, file: Path | None = None) -> FarmHost:
    """The host as it was; UsageError where it has not joined."""
    place = file or hosts_file()
    with storage_errors("forget the host", place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(place.with_suffix(".lock")):
            hosts = known_hosts_of_farm(place)
            host = find_host(name, hosts)
            _write(place, {key: other for key, other in hosts.items() if key != name})
    return host


def _write(file: Path, hosts: Mapping[str, FarmHost]) -> None:
    write_atomically(file, _HEADER + "".join(_table(host) for host in hosts.values()))


def _table(host: FarmHost) -> str:
    values = {
        "address": host.address,
        "key": host.key,
        "proxy": host.proxy,
        "program": host.program,
    }
    lines = [f"{key} = {toml_value(value)}\n" for key, value in values.items() if value is not None]
    return f"\n[hosts.{host.name}]\n{''.join(lines)}"


def _parse(file: Path, text: str) -> dict[str, FarmHost]:
    if not text.strip():
        return {}
    try:
        source = parse_toml(file, text.encode())
    except TomlError as error:
        raise _wrong([syntax_problem(file, error)]) from error
    problems: list[Problem] = []
    reader = TableReader(source, source.table, (), problems)
    reader.integer("schema", SCHEMA_VERSION, SCHEMA_VERSION)
    hosts: dict[str, FarmHost] = {}
    if reader.has("hosts"):
        tables = reader.table("hosts")
        for name in tables.names():
            if NAME_PATTERN.fullmatch(name):
                hosts[name] = _host(tables.table(name), name)
            else:
                tables.raw(name)
                tables.complain(name, show(name), NAME_EXPECTED)
        tables.finish()
    reader.finish()
    if problems:
        raise _wrong(sorted(problems, key=lambda problem: problem.line))
    return hosts


def _host(reader: TableReader, name: str) -> FarmHost:
    host = FarmHost(
        name,
        _target(reader, "address") or "nowhere",
        reader.matching("key", _PATH, "the path of a key file") if reader.has("key") else None,
        _target(reader, "proxy") if reader.has("proxy") else None,
        reader.matching("program", _PATH, "a program") if reader.has("program") else None,
    )
    reader.finish()
    return host


def _target(reader: TableReader, key: str) -> str | None:
    value = reader.raw(key)
    if isinstance(value, str) and is_target(value):
        return value
    reader.complain(key, show(value), TARGET_EXPECTED)
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
            hint="check it and its permissions",
        ) from error


def _wrong(problems: list[Problem]) -> ProjectError:
    return ProjectError(
        "; ".join(str(problem) for problem in problems[:3]),
        hint="docs/farm.md describes every key",
    )
