"""The commands on a device that a running farm serves, behind a real SSH server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.local_bundles import built_bundle
from support.needs import needs
from support.rpc_lab import eventually
from support.two_farms import FarmOn, farm_on

pytestmark = needs("sshd")

STOCK = """
import json, sys, time
from tvm import rpc
remote = rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request("local", session_timeout=600)
print(json.dumps({"there": remote.cpu(0).exist}), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmOn]:
    with farm_on(tmp_path_factory.mktemp("farm")) as farm:
        farm.up()
        yield farm


@pytest.fixture
def farm(up: FarmOn) -> FarmOn:
    up.becomes("desk", "free")
    return up


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(built_bundle(tmp_path_factory.mktemp("bundle"))[1].path)


class Started:
    """A command under way."""

    def __init__(self, farm: FarmOn, *words: str, user: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgekit", *words],
            env={**farm.lab.environment, **({"LOGNAME": user} if user else {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number: int | None = None) -> tuple[int, str]:
        if number is not None:
            os.kill(self.process.pid, number)
        told = self.process.communicate(timeout=300)[1]
        return self.process.returncode, told


def bench(farm: FarmOn, bundle: str, user: str = "") -> Started:
    words = ("bench", bundle, "--device", "desk", "--seconds", "0")
    return Started(farm, *words, user=user)


def test_every_command_gets_the_device_and_gives_it_back(farm: FarmOn, bundle: str) -> None:
    before = farm.device("desk")["sessions"]
    for words in (
        ("run", bundle, "--device", "desk"),
        ("verify", bundle, "--device", "desk"),
        ("versions", "--device", "desk"),
        ("logs", "--device", "desk"),
        ("device", "check", "desk"),
        ("device", "clean", "desk"),
    ):
        done = farm.edgekit(*words)
        assert done.returncode == 0, done.stderr
        assert "in use" not in done.stderr
        assert "waiting" not in done.stderr
    assert farm.device("desk")["sessions"] - before == 3
    farm.becomes("desk", "free")
    eventually(lambda: farm.lab.free("local") == 1)


def test_a_command_waits_for_a_session_of_the_tracker(farm: FarmOn, bundle: str) -> None:
    client = farm.python(STOCK)
    farm.becomes("desk", "busy")
    waits = bench(farm, bundle)
    eventually(lambda: farm.device("desk")["queue"])
    client.end(signal.SIGKILL)
    code, told = waits.end()
    assert code == 0, told
    assert "a client of the tracker has desk: waiting, number 1 in the queue" in told


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_two_compete_and_the_second_gets_it_however_the_first_ends(
    how: signal.Signals, farm: FarmOn, bundle: str
) -> None:
    first = Started(farm, "rpc", "serve", "--device", "desk", "--direct")  # until it is ended
    eventually(lambda: farm.device("desk")["lease"])
    second = bench(farm, bundle)
    eventually(lambda: farm.device("desk")["queue"])
    assert f":{second.process.pid}" in farm.device("desk")["queue"][0]["owner"]
    first.end(how)
    code, told = second.end()
    assert code == 0, told
    assert f":{first.process.pid} (rpc) has desk since" in told


def test_a_reserved_device_is_for_its_user_and_not_for_the_tracker(
    farm: FarmOn, bundle: str
) -> None:
    farm.json("reserve", "desk", "--for", "1h")
    eventually(lambda: farm.lab.free("local") == 0)
    assert farm.edgekit("run", bundle, "--device", "desk").returncode == 0
    bob = bench(farm, bundle, user="bob")
    eventually(lambda: farm.device("desk")["queue"])
    farm.json("release", "desk")
    code, told = bob.end()
    assert code == 0, told
    assert "desk is reserved for" in told
    eventually(lambda: farm.lab.free("local") == 1)


def test_a_farm_that_restarts_keeps_the_reservation_and_the_waiting_command(
    farm: FarmOn, bundle: str
) -> None:
    farm.json("reserve", "desk", "--for", "1h")
    bob = bench(farm, bundle, user="bob")
    eventually(lambda: farm.device("desk")["queue"])
    keeper = farm.keeper
    assert keeper is not None
    keeper.end(signal.SIGKILL)
    farm.up()
    eventually(lambda: farm.device("desk")["queue"])
    assert farm.device("desk")["state"] == "reserved"
    farm.json("release", "desk")
    code, told = bob.end()
    assert code == 0, told
    assert "the farm ended during the wait for desk" in told


def test_the_status_is_what_scripts_read(farm: FarmOn) -> None:
    document = json.loads(farm.run("status", "--json").stdout)
    (desk,) = document["devices"]
    assert desk["address"].endswith(f"127.0.0.1:{farm.lab.ssh.port}")
    assert desk["queue"] == []
    assert desk["reservation"] is None
