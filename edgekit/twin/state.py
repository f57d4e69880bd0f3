"""The state file of a twin: enough to start it again and to recognise its process.

Whether it runs is not recorded: the list of processes tells, and is never out of date.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from edgekit.base.decode import Check, Convert, Range, decode
from edgekit.base.errors import DeviceError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.json_reader import read_json_object
from edgekit.base.json_text import json_text
from edgekit.profiles.reader import NAME_PATTERN
from edgekit.twin.systemd import DEFAULT_INIT, Init

STATE_FILE = "twin.json"
LARGEST_FILE = 1 << 16

ShortText = Annotated[
    str, Check("a short text", lambda text: text.isprintable() and 0 < len(text) <= 200)
]
Uuid = Annotated[str, Convert("a UUID", lambda value: str(uuid.UUID(str(value))))]


@dataclass(frozen=True)
class Hardware:
    """The hardware that QEMU emulates."""

    machine: ShortText
    cpu: ShortText
    cores: Annotated[int, Range(1, 64)]
    memory: Annotated[int, Range(1, 1 << 40)]
    """The memory in bytes."""
    icount: bool = False
    """Whether the clock counts instructions, so that times do not depend on the host."""
    arch: ShortText = "aarch64"


@dataclass(frozen=True)
class TwinState:
    """The state of a Linux twin."""

    name: ShortText
    board: ShortText
    uuid: Uuid
    """The mark of its QEMU process, whose process id may change."""
    hardware: Hardware
    image: ShortText
    """The digest of the image's recipe."""
    port: Annotated[int, Range(1, 65535)]
    """The port of sshd on 127.0.0.1."""
    wanted: bool
    """Whether it was started and not stopped since. If it does not run then, it has died."""
    init: Init = DEFAULT_INIT
    schema: Literal[1] = 1


@dataclass(frozen=True)
class MicrocontrollerState:
    """The state of a microcontroller's twin."""

    name: ShortText
    board: ShortText
    uuid: Uuid
    hardware: Hardware
    clock: Annotated[int, Range(1, 1 << 32)]
    """The frequency of the machine's timer in Hz."""
    wanted: bool
    schema: Literal[1] = 1


S = TypeVar("S", TwinState, MicrocontrollerState)


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
                data = stream.read(LARGEST_FILE + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return parse_state(data, folder.name)


def parse_state(data: bytes, name: str) -> TwinState:
    """Parse a twin's state; raise DeviceError if it is damaged."""
    return parse_as(TwinState, data, name)


def parse_as(kind: type[S], data: bytes, name: str) -> S:
    """Parse the state of a twin of any kind; raise DeviceError if it is damaged."""
    try:
        if len(data) > LARGEST_FILE:
            raise ValueError("it is too long")
        document = read_json_object(data)
        if "schema" not in document:
            raise ValueError("it names no schema")
        state = decode(kind, document, ignore_unknown=True)
        if state.name != name or not NAME_PATTERN.fullmatch(name):
            raise ValueError("it is about another twin")
    except ValueError as error:
        raise DeviceError(
            f"the state of the twin {name} is damaged: {error}",
            hint=f"edgekit twin down {name} --delete removes it; then start it again",
        ) from error
    return state
