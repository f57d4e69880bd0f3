"""The record of the files of an export. The next export replaces these and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.decode import decode_json
from edgekit.base.errors import UsageError
from edgekit.base.files import sha256_file, storage_errors, write_atomically
from edgekit.base.json_text import json_text
from edgekit.base.options import option

RECORD = "edgekit-export.json"
_LARGEST = 1 << 20
_BUILT = {"build": "CMakeCache.txt", "rust/target": "CACHEDIR.TAG", "python/__pycache__": "."}
"""The folders that compilers make in an export, and what shows that they made them."""


@dataclass(frozen=True)
class Record:
    edgekit: str
    model: str
    board: str
    toolchain: str
    bundle: str
    """The digest of its manifest."""
    files: Mapping[str, str]
    """The SHA-256 of each file by path."""


def sums_of(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def write_record(folder: Path, record: Record) -> None:
    write_atomically(folder / RECORD, json_text(record) + "\n")


def check_destination(out: Path) -> None:
    """Refuse to replace files that no export made, or that were changed since."""
    with storage_errors("look at the output folder", out):
        if not out.is_dir():
            if out.exists():
                raise UsageError(
                    f"{out} is a file, and an export is a folder",
                    hint=f"choose another folder with {option('out')}; {option('zip')} adds a "
                    "single file beside it",
                )
            return
        lost = _would_be_lost(out)
    if lost is not None:
        raise UsageError(
            f"{out} holds {lost!r}, which an export would replace",
            hint="choose a folder that is new or empty with -o, and take over what has changed",
        )


def _would_be_lost(folder: Path) -> str | None:
    """Return the first file that is not as an export left it, or None. What compilers made does not
    count."""
    sums = _read_sums(folder)
    for current, folders, files in os.walk(folder):
        place = Path(current)
        inside = place.relative_to(folder)
        folders[:] = [name for name in folders if not _is_built(folder, inside / name)]
        links = [name for name in folders if (place / name).is_symlink()]
        for name in sorted([*files, *links]):
            path = place / name
            relative = path.relative_to(folder).as_posix()
            if relative == RECORD and sums:
                continue
            recorded = sums.get(relative)
            if recorded is None or path.is_symlink() or sha256_file(path) != recorded:
                return relative
    return None


def _is_built(folder: Path, path: Path) -> bool:
    mark = _BUILT.get(path.as_posix())
    return mark is not None and (folder / path / mark).exists()


def _read_sums(folder: Path) -> Mapping[str, str]:
    """Read the record; empty if it is missing or damaged: then every file counts as foreign."""
    try:
        with (folder / RECORD).open("rb") as stream:
            return decode_json(Record, stream.read(_LARGEST)).files
    except (OSError, ValueError):
        return {}
