"""Where the store is, by its URL, and where that waits which is not there yet. Imports no
database."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from edgekit.database_url import read_database_url
from edgekit.paths import data_dir

VARIABLE = "EDGEKIT_STORE"
OFF = "off"
"""What the variable says where nothing is to be kept."""
FILE_NAME = "measurements.db"
_SQLITE = "sqlite:///"
UNREADABLE = "a store whose URL can't be read"


def default_url() -> str:
    """The file of whoever runs edgekit, unless the environment names a store."""
    return os.environ.get(VARIABLE) or f"{_SQLITE}{data_dir() / FILE_NAME}"


def is_off(url: str | None = None) -> bool:
    return (url or default_url()) == OFF


def sqlite_file(url: str) -> Path | None:
    """None where it is something else."""
    if not url.startswith(_SQLITE):
        return None
    return Path(url.removeprefix(_SQLITE).partition("?")[0]).expanduser().absolute()


def name_of(url: str) -> str:
    """Name a store without any secret: the same for every spelling that can be known for one."""
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    parts = read_database_url(url)
    return UNREADABLE if parts is None else parts.name


def secrets_of(url: str) -> tuple[str, ...]:
    """List every part of a URL that may be a secret."""
    parts = None if sqlite_file(url) else read_database_url(url)
    return () if parts is None else parts.secrets


def outbox_folder() -> Path:
    """Where measurements wait for their stores, a folder each: `outbox.py`. Runs that edgekit kept
    before it knew for which store lie in the folder itself."""
    return data_dir() / "outbox"


def runs_folder(url: str | None = None) -> Path:
    """Where benchmark runs for that store wait."""
    return findings_folder(url) / "runs"


def is_own(url: str | None = None) -> bool:
    """Say whether it is the store of the user's own configuration, whatever a project names."""
    return name_of(url or default_url()) == name_of(default_url())


def findings_folder(url: str | None = None) -> Path:
    """Where findings for that store wait."""
    name = hashlib.sha256(name_of(url or default_url()).encode()).hexdigest()
    return outbox_folder() / f"for-{name[:16]}"


def waiting(folder: Path) -> tuple[Path, ...]:
    """The oldest findings first."""
    return tuple(sorted(folder.glob("*.json"))) if folder.is_dir() else ()
