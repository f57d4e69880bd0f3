"""Paths of edgekit's files on this host, and of profiles."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Literal

import platformdirs

from edgekit.base.errors import UsageError

ProfileKind = Literal["boards", "toolchains"]
PROJECT_FILE = "edgekit.toml"

_SEARCH_PATH_VARIABLES: dict[ProfileKind, str] = {
    "boards": "EDGEKIT_BOARD_PATH",
    "toolchains": "EDGEKIT_TOOLCHAIN_PATH",
}
PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package itself."""


def config_dir() -> Path:
    """Return the folder of the user's own profiles and devices."""
    return _of_user(platformdirs.user_config_path("edgekit", appauthor=False), ".config")


def cache_dir() -> Path:
    """Return the folder of files that can be deleted at any time. `EDGEKIT_CACHE_DIR` moves it."""
    named = named_path("EDGEKIT_CACHE_DIR")
    return named or _of_user(platformdirs.user_cache_path("edgekit", appauthor=False), ".cache")


def data_dir() -> Path:
    """Return the folder of measurements, which must not be lost."""
    return _of_user(platformdirs.user_data_path("edgekit", appauthor=False), ".local/share")


def named_path(variable: str) -> Path | None:
    """Read the file or folder that an environment variable names; None if it is not set.

    UsageError if the path is relative: it would be another folder in each project, and a stranger's
    in a clone.
    """
    named = os.environ.get(variable)
    return _absolute(variable, named) if named else None


def named_folders(variable: str) -> tuple[Path, ...]:
    """Read the folders that an environment variable lists; UsageError if one is relative."""
    listed = os.environ.get(variable, "").split(os.pathsep)
    return tuple(_absolute(variable, entry) for entry in listed if entry)


def from_home(named: str) -> Path:
    """Read a path that may begin with `~`. One of an unknown user stays as it is written."""
    path = Path(named)
    with suppress(RuntimeError):
        return path.expanduser()
    return path


def beside(file: Path, named: str) -> Path:
    """Read a path in a configuration file: relative ones start from the file's folder, and `~` is
    the home folder."""
    return file.parent / from_home(named)


def place_of(file: Path) -> Path:
    """Return the path that stands for a file: its folder without symbolic links, and its own name.

    A link to a file is a file of the folder that the link is in. Trust is remembered for this path,
    and relative paths in the file start from its folder: both mean the same folder.
    """
    return file.parent.resolve() / file.name


def profile_search_path(kind: ProfileKind, folder: Path | None = None) -> tuple[Path, ...]:
    """List the folders of profiles of this kind, those of a workspace's folder first.

    The first that has a name wins.
    """
    of_workspace = () if folder is None else (folder / kind,)
    return tuple(dict.fromkeys((*of_workspace, *own_profile_folders(kind))))


def own_profile_folders(kind: ProfileKind) -> tuple[Path, ...]:
    """List the profile folders of the user and of edgekit, without those of a workspace."""
    listed = named_folders(_SEARCH_PATH_VARIABLES[kind])
    return tuple(dict.fromkeys((*listed, config_dir() / kind, built_in_profiles(kind))))


def nearest_project_file(start: Path) -> Path | None:
    """Find the nearest edgekit.toml from `start` up to the root of repository or file system."""
    start = start.absolute()
    for folder in (start, *start.parents):
        file = folder / PROJECT_FILE
        if file.is_file():
            return file
        if (folder / ".git").exists():
            return None
    return None


def built_in_profiles(kind: ProfileKind) -> Path:
    """Return the folder of the profiles that come with edgekit."""
    return built_in_data(kind)


def built_in_data(name: str) -> Path:
    """Return a folder of data that comes with edgekit, in the wheel or in the checkout."""
    installed = PACKAGE / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def _absolute(variable: str, named: str) -> Path:
    path = from_home(named)
    if path.is_absolute():
        return path
    meant = f"{variable}={shlex.quote(str(path.absolute()))}"
    raise UsageError(
        f"{variable} names {named!r}, which is not an absolute path",
        hint=f"write the whole path if you mean this folder's: {meant}",
    )


def _of_user(folder: Path, below_home: str) -> Path:
    """Return a folder that the XDG variables may name.

    Relative ones are ignored, as the XDG specification says; older platformdirs take them.
    """
    return folder if folder.is_absolute() else Path.home() / below_home / "edgekit"
