"""The power of a device, switched by a command that really ends and starts an emulated board."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.needs import TWIN, needs
from support.twins import edgekit, edgekit_command, edgekit_json, share_images, twins_in

from edgekit.profiles.board import load_board
from edgekit.twin.machine import Started, status, up

pytestmark = [pytest.mark.slow, needs(*TWIN)]


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Started]:
    share_images(tmp_path / "cache")
    with twins_in(tmp_path / "cache"):
        yield up("shed", load_board("rpi4"))


@pytest.fixture
def address(twin: Started) -> Iterator[int]:
    """One port for whatever port the twin has: a board keeps its address, a twin does not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_forward, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _forward(server: socket.socket) -> None:
    while True:
        try:
            near, _ = server.accept()
        except OSError:
            return
        try:
            access = status("shed").access
            assert access is not None
            far = socket.create_connection((access.host, access.port))
        except (AssertionError, OSError):  # it is off
            near.close()
            continue
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_the_power_is_switched_and_a_board_that_hangs_gets_it_off_and_on(
    twin: Started, address: int, tmp_path: Path
) -> None:
    switch = tmp_path / "switch"
    on, off = (shlex.join(edgekit_command("twin", word, "shed")) for word in ("up", "down"))
    switch.write_text(f"#!/bin/sh\ncase $1 in on) exec {on};; off) exec {off};; esac\n")
    switch.chmod(0o755)
    key = Path(twin.access.key)
    said = subprocess.run(
        ["ssh-keygen", "-lf", str(key.parent / "ssh_host_ed25519_key.pub")],
        capture_output=True,
        text=True,
    ).stdout
    login = (f"{twin.access.user}@127.0.0.1:{address}", "--key", str(key))
    login = (*login, "--fingerprint", said.split()[1], "--power", f"sh:{switch} $1")
    edgekit_json("device", "add", "bench", "--board", "rpi4", *login)

    assert edgekit("device", "power", "off", "bench").stdout == "bench: is switched off\n"
    assert status("shed").pid is None
    assert edgekit("device", "check", "bench").returncode == 8
    assert edgekit("device", "power", "on", "bench").returncode == 0
    first = status("shed").pid
    assert first is not None
    alive = edgekit("device", "exec", "--device", "bench", "--", "uname", "-m")
    assert alive.stdout == "aarch64\n", alive.stderr

    os.kill(first, signal.SIGSTOP)
    revived = edgekit("device", "exec", "--device", "bench", "--", "uname", "-m")
    assert revived.stdout == "aarch64\n", revived.stderr
    assert "its power is switched off and on" in revived.stderr
    assert status("shed").pid != first
    edgekit("device", "remove", "bench")
