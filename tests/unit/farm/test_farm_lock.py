"""One farm a user: its lock."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from edgekit.base.errors import UsageError
from edgekit.base.files import try_lock
from edgekit.devices.keeper_client import farm_folder
from edgekit.farm import run
from edgekit.farm.control import lock_path


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the lock, whose holder does not answer as a farm does."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    farm_folder().mkdir(parents=True)
    lock = try_lock(lock_path())
    assert lock is not None
    return lock


def test_a_farm_waits_for_a_lock_that_is_held_for_a_moment(held: int) -> None:
    giving_back = threading.Timer(0.2, os.close, [held])
    giving_back.start()
    with run._only_one():
        giving_back.join()
        assert try_lock(lock_path()) is None


def test_a_farm_does_not_wait_forever(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SECONDS_TO_LOCK", 0.1)
    with pytest.raises(UsageError, match="a farm is up already"), run._only_one():
        pass
    os.close(held)
