"""What is written down about a twin: enough to start it again and to know it when it runs.

Whether it runs is never written down. That is asked of the system, which can't be out of date.
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
    """What QEMU emulates."""

    machine: str
    cpu: str
    cores: int
    memory: int
    """Bytes."""
    icount: bool = False
    """Its clock counts instructions: what it measures does not depend on the host."""


@dataclass(frozen=True)
class TwinState:
    name: str
    board: str
    uuid: str
    """Marks its QEMU process, whatever process id that gets."""
    hardware: Hardware
    image: str
    """The digest of the recipe."""
    port: int
    """Of sshd, on 127.0.0.1."""
    wanted: bool
    """Started and not stopped since: a twin that is wanted and isn't there has died."""
    init: Init = DEFAULT_INIT
    schema: int = SCHEMA_VERSION


def write_state(folder: Path, state: TwinState) -> None:
    with storage_errors("write down what the twin is", folder):
        write_atomically(folder / STATE_FILE, json_text(state) + "\n")


def read_state(folder: Path) -> TwinState | None:
    """None where there is no such twin; DeviceError where what was written is damaged."""
    path = folder / STATE_FILE
    with storage_errors("read what the twin is", folder):
        try:
            with path.open("rb") as stream:
                data = stream.read(_LARGEST_FILE + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return parse_state(data, folder.name)


def parse_state(data: bytes, name: str) -> TwinState:
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
            f"what is written about the twin {name} is damaged: {error}",
            hint=f"edgekit twin down {name} --delete removes it; then start it anew",
        ) from error
    return state


def text_of(table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 200:
        raise ValueError(f"{key} is not a short text")
    return value


def number_of(table: dict[str, Any], key: str, largest: int) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= largest:
        raise ValueError(f"{key} is not a whole number from 1 to {largest}")
    return value


def _init(table: dict[str, Any]) -> Init:
    value = table.get("init", DEFAULT_INIT)  # older ones don't say
    for init in INITS:
        if init == value:
            return init
    raise ValueError(f"init is none of {', '.join(INITS)}")


def flag_of(table: dict[str, Any], key: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is not true or false")
    return value
