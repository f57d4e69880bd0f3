"""The user's own devices, in devices.toml, and the board profiles that devices were added with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from edgekit.base.errors import ProfileError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import sha256_file, storage_errors
from edgekit.base.paths import built_in_profiles, config_dir, place_of
from edgekit.profiles.board import Board, load_board
from edgekit.profiles.reader import find_profile
from edgekit.project import user_file
from edgekit.project.devices import DeviceEntry
from edgekit.project.file import parse_devices

DEVICES_FILE = "devices.toml"

EntryT = TypeVar("EntryT", bound=DeviceEntry)


def devices_file() -> Path:
    return config_dir() / DEVICES_FILE


def parse_user_devices(file: Path, text: str) -> dict[str, DeviceEntry]:
    if not text:
        return {}
    folder = place_of(file)
    return user_file.parse(
        file, text, lambda reader: parse_devices(reader, folder), "docs/devices.md"
    )


def with_profile(entry: EntryT, board: Board) -> EntryT:
    """Return the entry with the file of its board's profile, unless every folder has it."""
    path = board.origin.absolute()
    everywhere = (config_dir() / "boards", built_in_profiles("boards"))
    if path.parent.name != "boards" or path.parent in everywhere:
        return entry
    with storage_errors("read the profile", path):
        return replace(entry, profile=str(path), profile_sha256=sha256_file(path))


def board_of(entry: DeviceEntry, places: Iterable[Path | None], events: Events = SILENT) -> Board:
    """Read the board of a device to use it: the profile that it was added with, else the first of
    those folders that has one. A changed profile is told."""
    problem = profile_problem(entry)
    if entry.profile is None:
        return load_board(entry.board, _first_with(entry.board, places))
    if problem is not None:
        if not Path(entry.profile).exists():
            raise ProfileError(problem, hint=_again(entry))
        events.warn(f"{problem}; {_again(entry)} remembers it")
    return load_board(entry.board, Path(entry.profile).parents[1])


def board_anywhere(name: str, places: Iterable[Path | None]) -> Board:
    """Read a board to use it: of the first of those folders that has it, else the profile of a
    device of the user, which may have been added in another folder."""
    place = _first_with(name, places)
    try:
        find_profile("boards", name, place)
    except ProfileError:
        own = devices_file()
        for entry in parse_user_devices(own, user_file.read_text(own)).values():
            if entry.board == name and entry.profile and Path(entry.profile).exists():
                return board_of(entry, ())
        raise
    return load_board(name, place)


def profile_problem(entry: DeviceEntry, places: Iterable[Path | None] = ()) -> str | None:
    """Say what is wrong with the profile of a device; None if it is as when it was added."""
    if entry.profile is None:
        try:
            find_profile("boards", entry.board, _first_with(entry.board, places))
        except ProfileError as error:
            return error.message
        return None
    path = Path(entry.profile)
    if not path.exists():
        return f"the profile of {entry.name} is gone: {path}"
    with storage_errors("read the profile", path):
        if sha256_file(path) != entry.profile_sha256:
            return f"the profile of {entry.name} has changed since it was added: {path}"
    return None


def _first_with(name: str, places: Iterable[Path | None]) -> Path | None:
    known = [place for place in places if place is not None]
    has_it = (place for place in known if (place / "boards" / f"{name}.toml").exists())
    return next(has_it, known[0] if known else None)


def _again(entry: DeviceEntry) -> str:
    return f"edgekit device add {entry.name} --force --board {entry.board} …"
