"""Where the store is, by its URL, and where that waits which is not there yet. Imports no
database."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from edgekit.base.database_url import read_database_url, relative_files, with_absolute_files
from edgekit.base.errors import UsageError
from edgekit.base.paths import beside, data_dir, from_home

VARIABLE = "EDGEKIT_STORE"
OFF = "off"
"""What the variable says where nothing is to be kept."""
FILE_NAME = "measurements.db"
_SQLITE = "sqlite:///"
_IN_NO_FOLDER = ("", ":memory:")
"""What stands for a store in memory. The function that opens a store refuses these."""
UNREADABLE = "a store whose URL can't be read"


def default_url() -> str:
    """Return the store that the environment names, or else the user's own file."""
    return named_url() or f"{_SQLITE}{data_dir() / FILE_NAME}"


def named_url() -> str | None:
    """Read the URL of the store that the environment names; None where it names none.

    UsageError where it names a file by a relative path: tuned kernels are taken from a store, and
    the file in the current folder may be a stranger's, or a certificate of a stranger's server.
    """
    url = os.environ.get(VARIABLE) or None
    if url is not None and url.startswith(_SQLITE):
        named = url.removeprefix(_SQLITE).partition("?")[0]
        if named not in _IN_NO_FOLDER and not from_home(named).is_absolute():
            raise UsageError(
                f"{VARIABLE} names the file {named!r}, which is not an absolute path",
                hint="write the whole path if you mean this folder's:"
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
    """Read a store's URL in a configuration file: the relative paths in it start from the file's
    folder."""
    if not url.startswith(_SQLITE):
        return with_absolute_files(url, lambda named: beside(file, named))
    named, mark, query = url.removeprefix(_SQLITE).partition("?")
    if named in _IN_NO_FOLDER:
        return url
    return f"{_SQLITE}{beside(file, named)}{mark}{query}"


def is_off(url: str | None = None) -> bool:
    return (url or default_url()) == OFF


def sqlite_file(url: str) -> Path | None:
    """None where it is something else."""
    if not url.startswith(_SQLITE):
        return None
    return from_home(url.removeprefix(_SQLITE).partition("?")[0]).absolute()


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
