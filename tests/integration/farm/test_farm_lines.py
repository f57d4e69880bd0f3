"""Microcontrollers of a farm: a line of this machine, one of another's, and one that is nowhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.microcontrollers import emulated, toy_firmware
from support.needs import MICROCONTROLLERS, needs
from support.noisy_line import Harm, noisy_line
from support.ports import CLOSED_PORT, free_port
from support.rpc_lab import Process, environment_in, eventually
from support.ssh_server import ssh_server
from support.twins import twins_in

from edgekit.devices.serial.device import SerialDevice
from edgekit.devices.serial.port import held

pytestmark = needs("sshd", *MICROCONTROLLERS)


@dataclass
class Lab:
    environment: dict[str, str]
    near: SerialDevice
    far: SerialDevice

    def run(self, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "edgekit", *arguments, "--json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def device(self, name: str) -> dict[str, Any]:
        (found,) = (d for d in self.run("farm", "status")["devices"] if d["name"] == name)
        return dict(found)

    def becomes(self, name: str, state: str) -> None:
        eventually(lambda: self.device(name)["state"] == state)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("farm")
    with (
        twins_in(folder / "cache"),
        ssh_server(folder / "host") as server,
        noisy_line(emulated("mps2-an500").port, Harm()) as far_port,
    ):
        running = Lab(
            {**environment_in(folder), "EDGEKIT_STORE": "off"},
            emulated("mps2-an386"),
            emulated("mps2-an500"),
        )
        for device in (running.near, running.far):
            with device.flashed(toy_firmware(device.name)):
                pass
        nowhere = f"socket://127.0.0.1:{CLOSED_PORT}"
        where = f"{server.user}@127.0.0.1:{server.port}"
        login = ("--via", where, "--key", server.key, "--fingerprint", server.fingerprint)
        for name, board, port, others in (
            ("near", "mps2-an386", running.near.port, ()),
            ("far", "mps2-an500", far_port, login),
            ("gone", "mps2-an386", nowhere, ()),
        ):
            running.run("device", "add", name, "--board", board, "--port", port, *others)
        words = [sys.executable, "-m", "edgekit", "farm", "up", "--port", str(free_port())]
        keeper = Process([*words, "--json"], running.environment, folder / "farm.log")
        try:
            yield running
        finally:
            keeper.end(signal.SIGTERM)


def test_a_line_is_free_then_busy_then_free(lab: Lab) -> None:
    lab.becomes("near", "free")
    assert lab.device("near")["key"] == ""
    with lab.near.held():
        lab.becomes("near", "busy")
    lab.becomes("near", "free")
    assert lab.device("near")["sessions"] == 1


def test_a_line_of_another_machine_is_free_then_busy(lab: Lab, tmp_path: Path) -> None:
    lab.becomes("far", "free")
    monitor = [sys.executable, "-m", "edgekit", "monitor", "--device", "far"]
    with (
        (tmp_path / "seen").open("wb") as seen,
        subprocess.Popen(
            monitor, env=lab.environment, stdin=subprocess.DEVNULL, stdout=seen, stderr=seen
        ) as watching,
    ):
        try:
            lab.becomes("far", "busy")
        finally:
            os.kill(watching.pid, signal.SIGINT)
    lab.becomes("far", "free")


def test_a_line_that_is_nowhere_is_lost_with_its_reason(lab: Lab) -> None:
    eventually(lambda: lab.device("gone")["state"] in ("lost", "quarantined"))
    assert "nothing listens at socket://" in lab.device("gone")["reason"]


def test_the_farm_keeps_nobody_from_a_line(lab: Lab) -> None:
    for _ in range(3):
        with held(lab.near.port):
            pass
