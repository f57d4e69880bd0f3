"""Default output folders, each of which belongs to one origin.

Two files of one name would both be built into `build/NAME-BOARD`. A hidden file beside a folder
says what it was made of, so that another origin gets a folder of its own. A folder that the user
names is the user's decision.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from edgekit.base.files import storage_errors, write_atomically

BUILD_FOLDER = "build"
_DIGITS = 6
_LONGEST = 4096


def own_folder(
    start: Path, name: str, origin: Path, is_ours: Callable[[Path], bool] = lambda folder: True
) -> Path:
    """Return `build/NAME` in `start`, or a folder beside it if that was made of another origin.

    `is_ours` decides about a folder without a record.
    """
    folder = start / BUILD_FOLDER / name
    if not folder.is_dir() or _is_of(folder, origin, is_ours):
        return folder
    digest = hashlib.sha256(_words(folder, origin).encode()).hexdigest()
    return folder.with_name(f"{name}-{digest[:_DIGITS]}")


def remember_origin(folder: Path, origin: Path) -> None:
    """Record what a folder in `build/` was made of."""
    if folder.parent.name == BUILD_FOLDER:
        with storage_errors("note what the folder was made of", folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(_record(folder), _words(folder, origin))


def _is_of(folder: Path, origin: Path, is_ours: Callable[[Path], bool]) -> bool:
    try:
        with _record(folder).open("rb") as stream:
            known = stream.read(_LONGEST).decode(errors="surrogateescape")
    except OSError:
        return is_ours(folder)
    return known == _words(folder, origin)


def _record(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.origin")


def _words(folder: Path, origin: Path) -> str:
    """Name the origin as seen from the folder, so that both may move together."""
    return os.path.relpath(origin.resolve(), folder.resolve().parent)
