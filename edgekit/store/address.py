"""The store's URL, and the folders of measurements that wait for it. Imports no database."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from edgekit.base.database_url import read_database_url, relative_files, with_absolute_files
from edgekit.base.errors import UsageError
from edgekit.base.paths import beside, data_dir, from_home

VARIABLE = "EDGEKIT_STORE"
OFF = "off"
"""The variable's value that turns the store off."""
FILE_NAME = "measurements.db"
_SQLITE = "sqlite:///"
_IN_NO_FOLDER = ("", ":memory:")
"""The names of a store in memory, which open_store refuses."""
UNREADABLE = "a store whose URL can't be read"


def default_url() -> str:
    """Return the URL that the environment names, or else the user's own file."""
    return named_url() or f"{_SQLITE}{data_dir() / FILE_NAME}"


def named_url() -> str | None:
    """Return the URL that the environment names, or None.

    Raise UsageError for a file with a relative path: builds take tuned kernels from a store, and
    the current folder may hold another user's file, or a certificate of another user's server.
    """
    url = os.environ.get(VARIABLE) or None
    if url is not None and url.startswith(_SQLITE):
        named = url.removeprefix(_SQLITE).partition("?")[0]
        if named not in _IN_NO_FOLDER and not from_home(named).is_absolute():
            raise UsageError(
                f"{VARIABLE} names the file {named!r}, which is not an absolute path",
                hint="write the whole path if you mean the current folder's:"
                f" {VARIABLE}={_SQLITE}{Path(named).absolute()}",
            )
    files = () if url is None else relative_files(url)
    if files:
        raise UsageError(
            f"{VARIABLE} names the file {files[0]!r}, which is not an absolute path",
            hint="write the whole path of each file in the URL",
        )
    return url


def with_files_beside(file: Path, url: str) -> str:
    """Make the relative paths of a URL in a configuration file start at the file's folder."""
    if not url.startswith(_SQLITE):
        return with_absolute_files(url, lambda named: beside(file, named))
    named, mark, query = url.removeprefix(_SQLITE).partition("?")
    if named in _IN_NO_FOLDER:
        return url
    return f"{_SQLITE}{beside(file, named)}{mark}{query}"


def is_off(url: str | None = None) -> bool:
    """Tell whether measurements are not kept."""
    return (url or default_url()) == OFF


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite URL; None for any other."""
    if not url.startswith(_SQLITE):
        return None
    return from_home(url.removeprefix(_SQLITE).partition("?")[0]).absolute()


def name_of(url: str) -> str:
    """Name a store without any secret. Spellings that clearly mean one store give one name."""
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
    """Return the folder in which measurements wait, in one folder per store (`outbox.py`).

    Runs from versions that did not record the store lie in the folder itself.
    """
    return data_dir() / "outbox"


def runs_folder(url: str | None = None) -> Path:
    """Return the folder of the benchmark runs that wait for a store."""
    return findings_folder(url) / "runs"


def is_own(url: str | None = None) -> bool:
    """Tell whether a store is the user's own, and not one that only a project names."""
    return name_of(url or default_url()) == name_of(default_url())


def findings_folder(url: str | None = None) -> Path:
    """Return the folder of the findings that wait for a store."""
    name = hashlib.sha256(name_of(url or default_url()).encode()).hexdigest()
    return outbox_folder() / f"for-{name[:16]}"


def waiting(folder: Path) -> tuple[Path, ...]:
    """List the files that wait in a folder, oldest first."""
    return tuple(sorted(folder.glob("*.json"))) if folder.is_dir() else ()
