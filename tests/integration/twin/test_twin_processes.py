"""Which process of an emulator's is the twin's, told with programs that only look like one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.rpc_lab import eventually

from edgekit.twin.processes import our_processes, process_of, twin_folder


@contextmanager
def emulator(folder: Path, *, daemon: bool) -> Iterator[int]:
    """QEMU is started with a session of its own; the daemon that it forks is in another's."""
    words = ["qemu-system-aarch64", "-c", "read end"]
    words += ["-name", f"edgekit-twin-{folder.name}", "-uuid", "1", "-D", str(folder / "qemu.log")]
    process = subprocess.Popen(
        words, executable="/bin/sh", stdin=subprocess.PIPE, start_new_session=not daemon
    )
    with process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("daemon_first", [False, True])
def test_of_the_two_that_an_emulator_is_while_it_starts_the_one_that_stays_is_the_twins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon_first: bool
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE_DIR", str(tmp_path))
    folder = twin_folder("garden")

    with emulator(folder, daemon=daemon_first) as one, emulator(folder, daemon=not daemon_first):
        # A program that has just been started shows what it is called a moment later.
        eventually(lambda: len(our_processes()) == 2)
        both = {process.is_daemon: process.pid for process in our_processes()}
        found = process_of(folder)

    assert (both[True] == one) is daemon_first
    assert found is not None
    assert found.pid == both[True]
    assert process_of(folder) is None
