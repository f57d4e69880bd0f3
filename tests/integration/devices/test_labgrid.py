"""Places of labgrid's as devices: its own coordinator, exporter and client, and a real SSH server.

labgrid has an environment of its own (it brings a pyserial that overwrites ours), which
scripts/setup makes; the folder that EDGEKIT_LABGRID names comes first.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.needs import labgrid_path, needs
from support.ports import free_port
from support.rpc_lab import environment_in, eventually
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import DeviceError
from edgekit.devices.base import DeviceBusy
from edgekit.devices.serial.labgrid import NetworkService, acquired

PATH = labgrid_path()
pytestmark = needs("labgrid", "sshd", "rsync")
HOLDS = """
import sys, time
from edgekit.devices.serial.labgrid import acquired
with acquired("desk") as place:
    print("mine", flush=True)
    time.sleep(600)
"""


@dataclass
class Labgrid:
    environment: dict[str, str]
    ssh: SshServer

    def client(self, place: str, *words: str, user: str = "") -> subprocess.CompletedProcess[str]:
        program = shutil.which("labgrid-client", path=PATH)
        assert program is not None
        return subprocess.run(
            [program, "-p", place, *words],
            env={**self.environment, **({"LG_USERNAME": user} if user else {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def is_acquired(self) -> bool:
        return "acquired: None" not in self.client("desk", "show").stdout

    def edgekit(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "edgekit", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labgrid]:
    folder = tmp_path_factory.mktemp("labgrid")
    port = free_port()
    environment = {
        **environment_in(folder), "PATH": PATH, "LG_COORDINATOR": f"127.0.0.1:{port}",
    }  # fmt: skip
    with ssh_server(folder / "ssh") as server:
        (folder / "resources.yaml").write_text(
            f"desk:\n  NetworkService:\n    address: 127.0.0.1\n    username: {server.user}\n"
            f"    port: {server.port}\n"
            "wing:\n  NetworkSerialPort:\n    host: 127.0.0.1\n    port: 4001\n    protocol: raw\n"
        )
        commands = (
            ["labgrid-coordinator", "-l", f"127.0.0.1:{port}"],
            ["labgrid-exporter", "-n", "rack", "--hostname", "localhost", "resources.yaml"],
        )
        processes = []
        with (folder / "log").open("wb") as log:
            for command in commands:
                program = shutil.which(command[0], path=PATH)
                assert program is not None
                processes.append(
                    subprocess.Popen(
                        [program, *command[1:]],
                        env=environment,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
                if command is commands[0]:
                    _wait_for(port)
        made = Labgrid(environment, server)
        try:
            for place in ("desk", "wing"):
                eventually(lambda place=place: _made(made, place))  # type: ignore[misc]
            yield made
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def _wait_for(port: int) -> None:
    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(listens)


def _made(lab: Labgrid, place: str) -> bool:
    lab.client(place, "create")
    lab.client(place, "add-match", f"rack/{place}/*")
    return f"rack/{place}/" in lab.client(place, "show").stdout.partition("Matching resource")[2]


def test_a_device_stands_where_its_place_says_and_the_place_is_free_after(lab: Labgrid) -> None:
    added = lab.edgekit(
        *("device", "add", "bench", "--board", "local", "--labgrid", "desk"),
        *("--key", lab.ssh.key, "--fingerprint", lab.ssh.fingerprint, "--force", "--json"),
    )
    assert added.returncode == 0, added.stderr
    assert f"127.0.0.1:{lab.ssh.port}" in json.loads(added.stdout)["device"]["address"]
    assert not lab.is_acquired()
    assert "labgrid's place desk" in lab.edgekit("device", "list").stdout
    assert lab.edgekit("device", "check", "bench").returncode == 0
    assert not lab.is_acquired()


def test_a_place_that_somebody_else_has_is_refused_with_their_name(lab: Labgrid) -> None:
    assert lab.client("desk", "acquire", user="ada").returncode == 0
    try:
        refused = lab.edgekit(
            *("device", "add", "taken", "--board", "local", "--labgrid", "desk"),
            *("--key", lab.ssh.key, "--fingerprint", lab.ssh.fingerprint),
        )
    finally:
        lab.client("desk", "release", user="ada")
    assert refused.returncode == 8
    assert "ada" in refused.stderr


def test_a_place_that_the_user_acquired_stays_acquired(
    lab: Labgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_here(lab, monkeypatch)
    assert lab.client("desk", "acquire").returncode == 0
    with acquired("desk") as place, acquired("desk") as again:
        assert place is again
    assert lab.is_acquired()
    assert lab.client("desk", "release").returncode == 0


def test_what_a_killed_edgekit_acquired_is_released_by_the_next(
    lab: Labgrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_here(lab, monkeypatch)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS], env=lab.environment, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "mine\n"
    with pytest.raises(DeviceBusy, match="another edgekit"), acquired("desk"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert lab.is_acquired()
    with acquired("desk"):
        pass
    assert not lab.is_acquired()


def test_a_serial_port_and_what_is_not_there(lab: Labgrid, monkeypatch: pytest.MonkeyPatch) -> None:
    use_here(lab, monkeypatch)

    with acquired("wing") as place:
        assert place.serial == "socket://127.0.0.1:4001"
        with pytest.raises(DeviceError, match="has no NetworkService"):
            place._resource(NetworkService)
    with pytest.raises(DeviceError, match="nowhere"), acquired("nowhere"):
        pass


def use_here(lab: Labgrid, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "LG_COORDINATOR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, lab.environment[name])
