"""Where the store is, by its URL, and where that waits which is not there yet. Imports no
database."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

from edgekit.paths import data_dir

VARIABLE = "EDGEKIT_STORE"
OFF = "off"
"""What the variable says where nothing is to be kept."""
FILE_NAME = "measurements.db"
_SQLITE = "sqlite:///"


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
    """The same for every spelling of a store that it can know about, and without a password."""
    file = sqlite_file(url)
    if file is not None:
        return str(file)
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a store whose URL can't be read"
    who, at, where = parts.netloc.rpartition("@")
    netloc = f"{who.partition(':')[0]}{at}{where}"
    return parts._replace(netloc=netloc, query="", fragment="").geturl()


def outbox_folder() -> Path:
    """Where what was measured waits for the store: `outbox.py`."""
    return data_dir() / "outbox"


def findings_folder(url: str | None = None) -> Path:
    """Where findings for that store wait."""
    name = hashlib.sha256(name_of(url or default_url()).encode()).hexdigest()
    return outbox_folder() / f"for-{name[:16]}"


def waiting(folder: Path | None = None) -> tuple[Path, ...]:
    """The oldest findings first."""
    place = folder or outbox_folder()
    return tuple(sorted(place.glob("*.json"))) if place.is_dir() else ()
