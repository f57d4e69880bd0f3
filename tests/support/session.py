"""The user that tests run as: a home of their own for each session, gone at its end.

No bundle, measurement, device, trusted file or setting of the user or an earlier session is read,
and none is left behind. What takes long to make and is named after a hash of all that decides its
bytes is linked from the user's cache, so that each is made once for all sessions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest

from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir

SHARED = ("agents", "libraries", "models", "runtimes")
"""What edgekit's cache shares: nothing that a build, a twin or a device wrote."""
_OF_OTHERS = ("edgekit-tests", "edgekit-ci", "pip", "zig")
"""Caches of other programs, and of what the tests themselves download and compile."""
_OF_THE_HOST = (".config/pip", ".pip", ".netrc")
"""Where packages come from."""
_SHARED_CACHE = "EDGEKIT_TESTS_SHARED_CACHE"
_OF_THE_USER = (
    "EDGEKIT_BOARD_PATH",
    "EDGEKIT_TOOLCHAIN_PATH",
    "SSH_AUTH_SOCK",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)


def shared_cache() -> Path:
    """Return edgekit's cache of the user who started the session."""
    return Path(os.environ[_SHARED_CACHE])


@contextmanager
def session() -> Iterator[Path]:
    """Give this process, and all that it starts, a home of its own while the block runs."""
    caches, user = platformdirs.user_cache_path(), Path.home()
    with (
        scratch_directory(caches / "edgekit-tests" / "sessions") as home,
        pytest.MonkeyPatch.context() as patch,
    ):
        cache = home / ".cache" / "edgekit"
        for name in SHARED:
            link(cache_dir() / name, cache / name)
        for name in _OF_OTHERS:
            link(caches / name, home / ".cache" / name)
        for name in _OF_THE_HOST:
            if (user / name).exists():
                _link(user / name, home / name)
        patch.setenv(_SHARED_CACHE, str(cache_dir()))
        for name in _OF_THE_USER:
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        # Else thousands of processes each compile edgekit's modules: a fifth of a small build.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setattr(sys, "dont_write_bytecode", False)
        # Tests with a home of their own find what is shared by this.
        patch.setenv("EDGEKIT_CACHE_DIR", str(cache))
        try:
            yield home
        finally:
            from support.twins import remove_all_twins

            remove_all_twins()  # a page that is run may leave one running, as a reader does


def link(folder: Path, place: Path) -> None:
    """Make `place` a link to the folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    _link(folder, place)


def _link(target: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
