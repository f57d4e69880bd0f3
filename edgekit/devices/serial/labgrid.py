"""Labgrid places: acquired while a device is used, and asked for its address.

labgrid's own client does the work, in whatever environment it is installed. labgrid keeps a place
acquired when its user's process dies. So edgekit notes what it acquired in a file, and the next use
of the place releases it.
"""

from __future__ import annotations

import ast
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from edgekit.base.children import Done, TimeoutExpired, run
from edgekit.base.decode import Check, DecodeError, Range, decode
from edgekit.base.errors import DeviceError, MissingToolError
from edgekit.base.files import storage_errors
from edgekit.base.paths import data_dir, named_path
from edgekit.base.programs import find_program
from edgekit.devices.base import DeviceBusy
from edgekit.devices.serial.lock import line_lock
from edgekit.project.devices import (
    HOST_EXPECTED,
    USER_EXPECTED,
    PlaceEntry,
    SshEntry,
    is_host,
    is_user,
)

_CLIENT = "labgrid-client"
_ENVIRONMENT = "LG_ENV"
"""Variable that names labgrid's environment file. The file may import Python modules."""
_SECONDS = 60.0
_OURS = b"acquired"
_ALREADY_OURS = re.compile(r"You have already acquired place [^ ]+\.\s*$")
_RESOURCE = re.compile(r"^Acquired resource .*\((?P<path>[^()]+)\):$")
_SCHEMES = {"raw": "socket", "rfc2217": "rfc2217"}
"""Pyserial's word for each protocol of a NetworkSerialPort."""

T = TypeVar("T")
_Host = Annotated[str, Check(HOST_EXPECTED, is_host)]
_Port = Annotated[int, Range(1, (1 << 16) - 1)]


@dataclass(frozen=True)
class _Extra:
    """What an exporter says of the way to its resource."""

    proxy: _Host | None = None
    proxy_required: bool = False


@dataclass(frozen=True)
class NetworkService:
    """A resource of labgrid: where SSH answers."""

    address: _Host
    username: Annotated[str, Check(USER_EXPECTED, is_user)] | None = None
    port: _Port = 22
    extra: _Extra | None = None

    @property
    def proxy(self) -> str | None:
        return self.extra.proxy if self.extra is not None and self.extra.proxy_required else None


@dataclass(frozen=True)
class NetworkSerialPort:
    """A resource of labgrid: where a serial line answers."""

    host: _Host
    port: _Port
    protocol: Literal["raw", "rfc2217"] = "rfc2217"


@dataclass(frozen=True)
class Place:
    """An acquired place, as labgrid describes it."""

    name: str
    resources: Mapping[str, Mapping[str, Any]]
    """Parameters of each resource, by its class."""

    def reached(self, entry: PlaceEntry) -> SshEntry:
        """Fill in the address of its NetworkService where the entry has none."""
        login = entry.login or SshEntry(entry.name, entry.board)
        found = self._resource(NetworkService)
        return replace(
            login,
            host=login.host or found.address,
            user=login.user or found.username,
            port=login.port or found.port,
            proxy=login.proxy or found.proxy,
        )

    @property
    def serial(self) -> str:
        """Return the address of its NetworkSerialPort, as pyserial opens it."""
        found = self._resource(NetworkSerialPort)
        host = f"[{found.host}]" if ":" in found.host else found.host
        return f"{_SCHEMES[found.protocol]}://{host}:{found.port}"

    def _resource(self, kind: type[T]) -> T:
        word = kind.__name__
        if word not in self.resources:
            others = ", ".join(sorted(self.resources)) or "nothing"
            raise DeviceError(
                f"the labgrid place {self.name} has no {word}, but {others}",
                hint=f"export one and match it: {_CLIENT} -p {self.name} add-match PATTERN",
            )
        try:
            return decode(kind, self.resources[word], ignore_unknown=True)
        except DecodeError as error:
            raise DeviceError(
                f"labgrid's description of the {word} of {self.name} is invalid: {error}",
                hint=f"{_CLIENT} -p {self.name} show; its exporter's file says so",
            ) from error


@dataclass
class _Held:
    """Places that this process has, with their counts: one device may need several connections."""

    place: Place
    giving_back: ExitStack
    users: int = 1


_held: dict[str, _Held] = {}
_changing = threading.Lock()


@contextmanager
def acquired(name: str, *, looking: bool = False) -> Iterator[Place]:
    """Acquire the place for the block; DeviceBusy if another user has it. A place that its user
    acquired beforehand is used and stays acquired. `looking` is for a farm's checks, which give way
    to users."""
    with _changing:
        if name in _held:
            held = _held[name]
            held.users += 1
        else:
            with ExitStack() as opened:
                place = opened.enter_context(_acquired_alone(name, looking))
                held = _held[name] = _Held(place, opened.pop_all())
    try:
        yield held.place
    finally:
        with _changing:
            held.users -= 1
            if not held.users:
                del _held[name]
                held.giving_back.close()


@contextmanager
def _acquired_alone(name: str, looking: bool) -> Iterator[Place]:
    note = data_dir() / "labgrid" / f"{name}.lock"
    with ExitStack() as stack:
        with storage_errors("note the labgrid place", note):
            note.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(line_lock(note, looking=looking))
        if lock is None:
            raise DeviceBusy(
                f"the labgrid place {name} is in use by another edgekit of this user",
                hint="wait until it is done, or end it",
            )
        is_left_over = note.read_bytes() == _OURS
        done = _client(name, "acquire")
        if done.status != 0 and not _ALREADY_OURS.search(done.errors):
            raise _refused(name, done)
        is_ours_to_release = done.status == 0 or is_left_over
        if is_ours_to_release:
            _note(lock, _OURS)
        try:
            yield Place(name, _resources(_client(name, "show")))
        finally:
            if is_ours_to_release:
                _client(name, "release")
                _note(lock, b"")


def _client(name: str, command: str) -> Done:
    named_path(_ENVIRONMENT)  # a relative path is an error: the client runs in an empty folder
    program = find_program(_CLIENT)
    if program is None:
        raise MissingToolError(
            f"{_CLIENT}, which knows labgrid's places, is not installed",
            hint="pipx install labgrid; LG_COORDINATOR=host:20408 says where its coordinator is",
        )
    try:
        return run([str(program), "-p", name, command], limit_s=_SECONDS)
    except TimeoutExpired as error:
        raise DeviceError(
            f"labgrid does not answer within {_SECONDS:g} s",
            hint="check that its coordinator runs and that LG_COORDINATOR is right",
        ) from error


def _refused(name: str, done: Done) -> DeviceError:
    lines = [line.strip() for line in done.errors.splitlines() if line.strip()]
    last = lines[-1].partition("Error: ")[2] or lines[-1] if lines else "it said nothing"
    kind = DeviceBusy if "already acquired" in last else DeviceError
    return kind(
        f"labgrid does not give the place {name}: {last[:200]}",
        hint=f"{_CLIENT} -p {name} show tells who has it",
    )


def _resources(done: Done) -> dict[str, Mapping[str, Any]]:
    """Read the output of `show`: a line for each resource, with its values in Python syntax."""
    found: dict[str, Mapping[str, Any]] = {}
    kind, block = "", ""
    for line in [*done.output.splitlines(), "end"]:
        if kind and line.startswith("  "):
            block += line[2:] + "\n"
            continue
        if kind:
            found.setdefault(kind, _parameters(block))
        match = _RESOURCE.match(line)
        parts = match["path"].split("/") if match is not None else []
        kind, block = parts[2] if len(parts) > 2 else "", ""
    return found


def _parameters(block: str) -> Mapping[str, Any]:
    try:
        said = ast.literal_eval(block)
        parameters = said["params"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        return {}
    return parameters if isinstance(parameters, dict) else {}


def _note(lock: int, text: bytes) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)
