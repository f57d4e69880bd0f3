"""The state file of a twin: enough to start it again and to recognise its process.

Whether it runs is not recorded: the list of processes tells, and is never out of date.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.base.errors import DeviceError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.json_reader import read_json
from edgekit.base.json_text import json_text
from edgekit.profiles.reader import NAME_PATTERN
from edgekit.twin.systemd import DEFAULT_INIT, INITS, Init

STATE_FILE = "twin.json"
SCHEMA_VERSION = 1
_LARGEST_FILE = 1 << 16
_LARGEST_MEMORY = 1 << 40
_MOST_CORES = 64


@dataclass(frozen=True)
class Hardware:
    """The hardware that QEMU emulates."""

    machine: str
    cpu: str
    cores: int
    memory: int
    """The memory in bytes."""
    icount: bool = False
    """Whether the clock counts instructions, so that times do not depend on the host."""


@dataclass(frozen=True)
class TwinState:
    """The state of a Linux twin."""

    name: str
    board: str
    uuid: str
    """The mark of its QEMU process, whose process id may change."""
    hardware: Hardware
    image: str
    """The digest of the image's recipe."""
    port: int
    """The port of sshd on 127.0.0.1."""
    wanted: bool
    """Whether it was started and not stopped since. If it does not run then, it has died."""
    init: Init = DEFAULT_INIT
    schema: int = SCHEMA_VERSION


def write_state(folder: Path, state: TwinState) -> None:
    """Write a twin's state."""
    with storage_errors("write the twin's state", folder):
        write_atomically(folder / STATE_FILE, json_text(state) + "\n")


def read_state(folder: Path) -> TwinState | None:
    """Read a twin's state. Return None for no such twin; raise DeviceError for damaged state."""
    path = folder / STATE_FILE
    with storage_errors("read the twin's state", folder):
        try:
            with path.open("rb") as stream:
                data = stream.read(_LARGEST_FILE + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return parse_state(data, folder.name)


def parse_state(data: bytes, name: str) -> TwinState:
    """Parse a twin's state; raise DeviceError if it is damaged."""
    try:
        if len(data) > _LARGEST_FILE:
            raise ValueError("it is too long")
        document = read_json(data)
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        if document.get("schema") != SCHEMA_VERSION:
            raise ValueError(f"its schema is {document.get('schema')!r}, not {SCHEMA_VERSION}")
        hardware = document.get("hardware")
        if not isinstance(hardware, dict):
            raise ValueError("hardware is missing")
        state = TwinState(
            name=text_of(document, "name"),
            board=text_of(document, "board"),
            uuid=str(uuid.UUID(text_of(document, "uuid"))),
            hardware=Hardware(
                machine=text_of(hardware, "machine"),
                cpu=text_of(hardware, "cpu"),
                cores=number_of(hardware, "cores", _MOST_CORES),
                memory=number_of(hardware, "memory", _LARGEST_MEMORY),
                icount="icount" in hardware and flag_of(hardware, "icount"),
            ),
            image=text_of(document, "image"),
            port=number_of(document, "port", 65535),
            wanted=flag_of(document, "wanted"),
            init=_init(document),
        )
        if state.name != name or not NAME_PATTERN.fullmatch(name):
            raise ValueError("it is about another twin")
    except (ValueError, RecursionError) as error:
        raise DeviceError(
            f"the state of the twin {name} is damaged: {error}",
            hint=f"edgekit twin down {name} --delete removes it; then start it again",
        ) from error
    return state


def text_of(table: dict[str, Any], key: str) -> str:
    """Return a short text; raise ValueError for anything else."""
    value = table.get(key)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 200:
        raise ValueError(f"{key} is not a short text")
    return value


def number_of(table: dict[str, Any], key: str, largest: int) -> int:
    """Return a positive number; raise ValueError for anything else."""
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= largest:
        raise ValueError(f"{key} is not a whole number from 1 to {largest}")
    return value


def _init(table: dict[str, Any]) -> Init:
    value = table.get("init", DEFAULT_INIT)  # older states have none
    for init in INITS:
        if init == value:
            return init
    raise ValueError(f"init is none of {', '.join(INITS)}")


def flag_of(table: dict[str, Any], key: str) -> bool:
    """Return a flag; raise ValueError for anything else."""
    value = table.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is not true or false")
    return value
