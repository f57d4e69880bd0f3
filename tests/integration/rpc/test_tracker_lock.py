"""The lock of this user's tracker, which who looks for a tracker holds for a moment too."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from edgekit.base.errors import UsageError
from edgekit.base.files import try_lock
from edgekit.base.paths import data_dir
from edgekit.rpc.tracker import run_tracker, running_tracker


def test_a_tracker_starts_however_long_another_process_looks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may interrupt a process that looks while it holds the lock."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = data_dir() / "rpc"
    assert folder.is_relative_to(tmp_path)
    folder.mkdir(parents=True)
    look = try_lock(folder / "tracker.lock")
    assert look is not None
    started, stop = threading.Event(), threading.Event()

    def serve() -> None:
        run_tracker(0, started=lambda tracker: started.set(), stop=stop)

    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(serve)
        try:
            assert not wait([serving], timeout=3.0).done
        finally:
            os.close(look)
        try:
            assert started.wait(240)
            running = running_tracker()
            assert running is not None
            with pytest.raises(UsageError, match=f"running already, at {running.address}"):
                run_tracker(0, started=lambda tracker: None)
        finally:
            stop.set()
        serving.result(240)
    assert running_tracker() is None
