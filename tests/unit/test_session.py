"""A session of tests reads nothing that an earlier one left, and nothing of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.building import CHECKOUT
from support.session import SHARED, shared_cache

from edgekit.base.cache import BuildCache
from edgekit.base.paths import cache_dir, config_dir, data_dir

KEY = "0" * 64
ASK = """
import sys
from support.session import session
from edgekit.base.cache import BuildCache
from edgekit.base.paths import cache_dir, config_dir, data_dir

with session() as home:
    print(home)
    assert BuildCache().find(sys.argv[1]) is None
    assert (cache_dir() / "libraries" / "made").is_file()
    for folder in (cache_dir(), config_dir(), data_dir()):
        assert folder.is_relative_to(home), folder
    with BuildCache().locked(sys.argv[1]), BuildCache().storing(sys.argv[1], "build", "tiny"):
        pass
    assert BuildCache().find(sys.argv[1]) is not None
"""


def test_this_session_has_a_home_of_its_own() -> None:
    home = Path.home()
    assert home.parent.name == "sessions"
    for folder in (cache_dir(), config_dir(), data_dir()):
        assert folder.is_relative_to(home)
    assert not cache_dir().samefile(shared_cache())
    linked = {folder.name for folder in cache_dir().iterdir() if folder.is_symlink()}
    assert linked == set(SHARED)
    assert not BuildCache().root.resolve().is_relative_to(shared_cache().resolve())


def test_a_session_finds_libraries_of_the_user_and_no_bundle_of_an_earlier_session(
    tmp_path: Path,
) -> None:
    users = tmp_path / "cache"
    cache = BuildCache(users / "builds")
    with cache.locked(KEY), cache.storing(KEY, "build", "tiny"):
        pass
    (users / "libraries").mkdir()
    (users / "libraries" / "made").touch()

    homes = [_session_of(tmp_path, users) for _ in range(2)]

    assert homes[0] != homes[1]
    assert not any(home.exists() for home in homes)


def _session_of(home: Path, cache: Path) -> Path:
    environment = {
        **os.environ,
        "HOME": str(home),
        "EDGEKIT_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join((str(CHECKOUT), str(CHECKOUT / "tests"))),
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK, KEY], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
