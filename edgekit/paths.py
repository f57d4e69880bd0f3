"""Where edgekit keeps things on this machine, and where it looks for profiles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import platformdirs

ProfileKind = Literal["boards", "toolchains"]
PROJECT_FILE = "edgekit.toml"

_SEARCH_PATH_VARIABLES: dict[ProfileKind, str] = {
    "boards": "EDGEKIT_BOARD_PATH",
    "toolchains": "EDGEKIT_TOOLCHAIN_PATH",
}


def config_dir() -> Path:
    """What the user sets: their own profiles and devices."""
    return platformdirs.user_config_path("edgekit", appauthor=False)


def cache_dir() -> Path:
    """What can be deleted at any time and made again. `EDGEKIT_CACHE_DIR` moves it."""
    override = os.environ.get("EDGEKIT_CACHE_DIR")
    if override:
        return Path(override).expanduser().absolute()
    return platformdirs.user_cache_path("edgekit", appauthor=False)


def data_dir() -> Path:
    """What was measured and must not be lost."""
    return platformdirs.user_data_path("edgekit", appauthor=False)


def profile_search_path(kind: ProfileKind) -> tuple[Path, ...]:
    """The folders that may hold profiles of this kind; the first that has a name wins."""
    return tuple(dict.fromkeys((Path.cwd() / kind, *own_profile_folders(kind))))


def own_profile_folders(kind: ProfileKind) -> tuple[Path, ...]:
    """The same without the current folder's: the user's own, and those that come with edgekit."""
    listed = os.environ.get(_SEARCH_PATH_VARIABLES[kind], "")
    folders = [Path(part).expanduser().absolute() for part in listed.split(os.pathsep) if part]
    folders += [config_dir() / kind, built_in_profiles(kind)]
    return tuple(dict.fromkeys(folders))


def nearest_project_file(start: Path) -> Path | None:
    """The nearest edgekit.toml, from `start` upwards to the repository's or file system's root."""
    start = start.absolute()
    for folder in (start, *start.parents):
        file = folder / PROJECT_FILE
        if file.is_file():
            return file
        if (folder / ".git").exists():
            return None
    return None


def built_in_profiles(kind: ProfileKind) -> Path:
    """The folder of the profiles that come with edgekit."""
    return built_in_data(kind)


def built_in_data(name: str) -> Path:
    """A folder of data that comes with edgekit: in the wheel, or in the checkout."""
    package = Path(__file__).resolve().parent
    installed = package / name
    return installed if installed.is_dir() else package.parent / name
