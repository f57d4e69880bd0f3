"""The devices that are known: the project's, in edgekit.toml, and the user's own, in devices.toml.

Of two with one name the project's counts. `edgekit device add` and `remove` change the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import ProjectError, UsageError
from edgekit.base.files import write_atomically
from edgekit.base.paths import config_dir, place_of
from edgekit.base.wording import did_you_mean
from edgekit.project import user_file
from edgekit.project.devices import DeviceEntry
from edgekit.project.file import Project, parse_devices

DEVICES_FILE = "devices.toml"
_HEADER = f"""\
# The devices that `edgekit device` knows for this user. docs/devices.md describes every key.
schema = {user_file.SCHEMA_VERSION}
"""


@dataclass(frozen=True)
class KnownDevice:
    entry: DeviceEntry
    origin: Path
    """The file that says so."""


def devices_file() -> Path:
    return config_dir() / DEVICES_FILE


def known_devices(project: Project | None, file: Path | None = None) -> dict[str, KnownDevice]:
    """Every device by its name, in the order in which they are tried."""
    own = file or devices_file()
    devices: dict[str, KnownDevice] = {}
    if project is not None:
        for entry in project.devices.values():
            devices[entry.name] = KnownDevice(entry, project.path)
    for entry in _parse(own, user_file.read_text(own)).values():
        devices.setdefault(entry.name, KnownDevice(entry, own))
    return devices


def find_device(name: str, devices: Mapping[str, KnownDevice]) -> KnownDevice:
    if name in devices:
        return devices[name]
    raise UsageError(
        f"there is no device {name!r}",
        hint=did_you_mean(name, devices, "`edgekit device list` shows those there are"),
    )


def add_device(entry: DeviceEntry, *, replace: bool = False, file: Path | None = None) -> Path:
    """Write a device into the user's file; the file."""
    own = file or devices_file()
    with user_file.editing(own, "remember the device"):
        text = user_file.read_text(own)
        known = _parse(own, text)
        if entry.name in known:
            if not replace:
                raise _taken(entry.name)
            text = _without(own, text, entry.name)
        _write(own, f"{text or _HEADER}\n{_table(entry)}", {**known, entry.name: entry})
    return own


def remove_device(name: str, file: Path | None = None) -> bool:
    """Take a device out of the user's file; whether it was in there."""
    own = file or devices_file()
    if not user_file.read_text(own):
        return False
    with user_file.editing(own, "forget the device"):
        text = user_file.read_text(own)
        known = _parse(own, text)
        if name not in known:
            return False
        left = {key: entry for key, entry in known.items() if key != name}
        _write(own, _without(own, text, name), left)
    return True


def refuse_taken(name: str, replace: bool) -> None:
    """UsageError where a device of that name is there and is not to be replaced."""
    own = devices_file()
    if not replace and name in _parse(own, user_file.read_text(own)):
        raise _taken(name)


def forget_device(name: str, project: Project | None) -> Path:
    """Take a device out of the user's file, the file; UsageError where it is not in there."""
    if remove_device(name):
        return devices_file()
    known = find_device(name, known_devices(project))
    raise UsageError(
        f"the device {name} stands in {known.origin}", hint=f"take [devices.{name}] out of it"
    )


def _taken(name: str) -> UsageError:
    return UsageError(
        f"there is a device {name} already",
        hint="choose another name, or add --force to replace it",
    )


def _write(file: Path, text: str, expected: Mapping[str, DeviceEntry]) -> None:
    """Written only if it says what it is to say: the user may have laid the file out otherwise."""
    if dict(_parse(file, text)) != dict(expected):
        raise ProjectError(
            f"{file} is laid out in a way that edgekit can't edit",
            hint="edit it by hand: one table [devices.NAME] for each device",
        )
    write_atomically(file, text)


def _without(file: Path, text: str, name: str) -> str:
    """The text without one table, whose lines go from its header to the next one."""
    lines = text.splitlines(keepends=True)
    headers = [n for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    for position, start in enumerate(headers):
        if lines[start].split("#")[0].replace('"', "").strip() == f"[devices.{name}]":
            end = headers[position + 1] if position + 1 < len(headers) else len(lines)
            kept = "".join(lines[:start]).rstrip("\n")
            rest = "".join(lines[end:])
            return f"{kept}\n\n{rest}" if rest else f"{kept}\n"
    return text


def _table(entry: DeviceEntry) -> str:
    values: dict[str, str | int | None] = {
        "board": entry.board,
        "host": entry.host,
        "user": entry.user,
        "port": entry.port,
        "key": entry.key,
        "proxy": entry.proxy,
        "directory": entry.directory,
        "twin": entry.twin or None,
        "serial": entry.serial,
        "baud": entry.baud,
        "probe": entry.probe,
        "labgrid": entry.labgrid,
    }
    return user_file.table_text(f"devices.{entry.name}", values)


def _parse(file: Path, text: str) -> dict[str, DeviceEntry]:
    if not text:
        return {}
    folder = place_of(file)
    return user_file.parse(
        file, text, lambda reader: parse_devices(reader, folder), "docs/devices.md"
    )
