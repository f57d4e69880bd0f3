"""Two hosts, a farm on each, and one of them has joined the other through a real SSH server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.local_bundles import built_bundle
from support.needs import needs
from support.ports import CLOSED_PORT
from support.rpc_lab import Process, eventually
from support.two_farms import FarmOn, farm_on

pytestmark = needs("sshd")

CLIENT = """
import json, time
from edgekit.farm.session import farm_session
with farm_session("local", "tuning", timeout=600) as session:
    print(json.dumps({"version": session.get_function("edgekit.tvm_version")()}), flush=True)
    time.sleep(600)
"""
STOCK = """
import json, sys, time
from tvm import rpc
remote = rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request("local", session_timeout=600)
print(json.dumps({"there": remote.cpu(0).exist}), flush=True)
time.sleep(600)
"""
LENT = """
import json, time
from edgekit.devices.lending import lent
with lent("wing", "counting cycles", wait=600):
    print(json.dumps({"lent": True}), flush=True)
    time.sleep(600)
"""
NOWHERE = f"socket://127.0.0.1:{CLOSED_PORT}"
FAR = "attic/desk"


@dataclass
class Two:
    near: FarmOn
    far: FarmOn


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("hosts")
    with farm_on(folder / "near") as near, farm_on(folder / "far") as far:
        # A microcontroller that nobody switched on can be lent all the same: to be flashed.
        added = far.edgekit("device", "add", "wing", "--board", "stm32f405", "--port", NOWHERE)
        assert added.returncode == 0, added.stderr
        yield Two(near, far)


@pytest.fixture
def two(hosts: Two) -> Two:
    """Both up and joined; all of the near host's own devices are drained."""
    for farm in (hosts.far, hosts.near):
        if farm.keeper is None or not farm.keeper.is_running():
            farm.up()
    if not hosts.near.ask("status")["hosts"]:
        hosts.near.join(hosts.far, "attic")
    hosts.far.ask("resume", "desk")
    hosts.near.ask("drain", "desk")
    hosts.near.becomes(FAR, "free")
    return hosts


def test_a_host_without_a_farm_does_not_join(hosts: Two) -> None:
    if hosts.far.keeper is not None:
        hosts.far.keeper.end()
    server = hosts.far.lab.ssh
    address = f"{server.user}@127.0.0.1:{server.port}"
    login = ("--key", server.key, "--fingerprint", server.fingerprint)
    refused = hosts.near.run("join", address, "--name", "attic", *login)
    assert refused.returncode == 8
    assert "no farm is up" in refused.stderr
    unknown = hosts.near.run(
        "join", address, "--key", server.key, "--fingerprint", "SHA256:" + "A" * 43
    )
    assert unknown.returncode == 8
    assert "SHA256" in unknown.stderr
    missing = hosts.near.run("join", address, "--name", "attic", *login, "--edgekit", "/no/such")
    assert "was not found on attic" in missing.stderr


@pytest.mark.parametrize(
    ("script", "mode", "message"),
    [
        ("exit 0", 0o644, "may not be run by the user who logs in"),
        ("echo 'open: Permission denied' >&2; exit 1", 0o755, "answered: open: Permission denied"),
        ("kill -9 $$", 0o755, "ended before it answered"),
        (
            """echo '{"gate": "0.0.1"}'; read x; echo '{"id":0,"answer":{"pid":1}}'; cat""",
            0o755,
            "the status of attic is not understood",
        ),
    ],
)
def test_an_edgekit_that_does_not_serve_is_told_as_what_it_is(
    script: str, mode: int, message: str, hosts: Two, tmp_path: Path
) -> None:
    program = tmp_path / "edgekit-there"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(mode)
    server = hosts.far.lab.ssh
    address = f"{server.user}@127.0.0.1:{server.port}"
    login = ("--key", server.key, "--fingerprint", server.fingerprint)
    refused = hosts.near.run("join", address, "--name", "attic", *login, "--edgekit", str(program))
    assert refused.returncode == 8
    assert message in refused.stderr
    assert "its disk" not in refused.stderr
    assert "attic" in refused.stderr.partition("hint: ")[2]


def test_what_the_other_host_has_is_shown_and_handed_out_here(two: Two) -> None:
    shown = two.near.device(FAR)
    assert shown["host"] == "attic"
    assert two.near.device("desk")["host"] == ""
    client = two.near.python(STOCK)
    assert client.report == {"there": True}
    two.far.becomes("desk", "busy")
    two.near.becomes(FAR, "busy")
    client.end(signal.SIGKILL)
    two.near.becomes(FAR, "free")
    two.far.becomes("desk", "free")
    assert "attic" in two.near.run("status").stdout


def test_a_lease_taken_here_is_known_over_there(two: Two) -> None:
    client = two.near.python(CLIENT)
    assert client.report["version"]
    eventually(lambda: two.far.device("desk")["lease"] is not None)
    assert two.far.device("desk")["lease"]["purpose"] == "tuning"
    eventually(lambda: two.near.device(FAR).get("lease") is not None)
    assert two.near.device(FAR)["lease"]["until"] > time.time()
    client.end(signal.SIGKILL)
    two.near.becomes(FAR, "free")


def test_a_microcontroller_over_there_is_lent_from_here(two: Two) -> None:
    eventually(lambda: two.near.device("wing").get("host") == "attic")
    client = two.near.python(LENT)
    lease = two.far.device("wing")["lease"]
    assert lease is not None
    assert lease["purpose"] == "counting cycles"
    eventually(lambda: two.near.device("wing").get("lease") is not None)
    client.end(signal.SIGKILL)
    eventually(lambda: two.far.device("wing")["lease"] is None)


def test_a_drain_from_here_drains_over_there(two: Two) -> None:
    two.near.json("drain", FAR)
    two.far.becomes("desk", "drained")
    two.near.becomes(FAR, "drained")
    eventually(lambda: two.near.lab.free("local") == 0)
    two.near.ask("resume", FAR)
    two.near.becomes(FAR, "free")
    eventually(lambda: two.near.lab.free("local") == 1)
    wrong = two.near.run("drain", "attic/dessk")
    assert wrong.returncode == 2


def test_who_has_it_over_there_keeps_it_from_being_promised_here(two: Two) -> None:
    client = two.far.python(STOCK)
    two.near.becomes(FAR, "busy")
    eventually(lambda: two.near.lab.free("local") == 0)
    client.end(signal.SIGKILL)
    eventually(lambda: two.near.lab.free("local") == 1)


def test_units_are_written_on_the_other_host(two: Two) -> None:
    done = two.near.json("install", "--on", "attic", "--no-web")
    (unit,) = (Path(path) for path in done["units"])
    assert unit.is_relative_to(two.far.lab.folder)
    assert "ExecStart=" in unit.read_text()
    assert 'Environment="PATH=' in unit.read_text()
    assert two.near.run("install", "--on", "nowhere").returncode == 2


def test_a_host_that_is_lost_takes_its_devices_along_and_brings_them_back(two: Two) -> None:
    assert two.far.keeper is not None
    two.far.keeper.end()
    two.near.becomes(FAR, "lost")
    assert "attic is unreachable" in two.near.device(FAR)["reason"]
    eventually(lambda: two.near.lab.free("local") == 0)
    (host,) = two.near.ask("status")["hosts"]
    assert host["state"] != "up"
    two.far.up()
    two.near.becomes(FAR, "free")
    eventually(lambda: two.near.lab.free("local") == 1)


def test_a_connection_that_is_cut_is_made_again(two: Two) -> None:
    client = two.near.python(STOCK)
    two.near.becomes(FAR, "busy")
    two.far.lab.ssh.drop_connections()
    eventually(lambda: two.far.device("desk")["state"] != "busy")
    two.near.becomes(FAR, "free")
    client.end(signal.SIGKILL)


def test_a_farm_does_not_join_itself(two: Two) -> None:
    server = two.near.lab.ssh
    refused = two.near.run(
        *("join", f"{server.user}@127.0.0.1:{server.port}", "--name", "mirror"),
        *("--key", server.key, "--fingerprint", server.fingerprint),
    )
    assert refused.returncode == 2
    assert "is this host itself" in refused.stderr


def test_a_host_that_leaves_takes_its_devices_along(two: Two) -> None:
    assert two.near.keeper is not None
    family = two.near.lab.family(two.near.keeper.pid)
    (worker,) = (pid for pid in family if b"edgekit.farm.hosts.worker" in words(pid))
    two.near.json("leave", "attic")
    assert two.near.device(FAR) == {}
    assert two.near.ask("status")["hosts"] == []
    assert two.far.device("desk")["state"] == "free"
    assert two.near.lab.alive([worker]) == []
    assert two.near.run("leave", "attic").returncode == 2


def test_the_end_of_either_keeper_leaves_nothing_of_it(two: Two) -> None:
    assert two.near.keeper is not None
    processes = two.near.lab.family(two.near.keeper.pid)
    two.near.keeper.end(signal.SIGKILL)
    eventually(lambda: two.near.lab.alive(processes) == [])
    server = two.far.lab.ssh.process.pid
    eventually(lambda: not any(b"gate" in words(pid) for pid in two.far.lab.family(server)))
    assert two.far.device("desk")["state"] == "free"


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(built_bundle(tmp_path_factory.mktemp("bundle"))[1].path)


def test_commands_use_a_board_of_the_other_host(two: Two, bundle: str) -> None:
    """The near host has neither the address nor a key of the board."""
    before = two.far.device("desk")["sessions"]
    for words in (
        ("run", bundle, "--device", FAR),
        ("verify", bundle, "--device", FAR),
        ("bench", bundle, "--device", FAR, "--seconds", "0"),
        ("versions", "--device", FAR),
        ("logs", "--device", FAR),
        ("device", "check", FAR),
        ("device", "clean", FAR),
    ):
        done = two.near.edgekit(*words)
        assert done.returncode == 0, (words, done.stderr)
    assert two.far.device("desk")["sessions"] - before == 4
    log = two.far.edgekit("logs", "--device", "desk", "-n", "50").stdout
    assert "10 runs" in log
    assert "tidied up" in log
    two.near.becomes(FAR, "free")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_command_waits_for_the_other_hosts_and_gives_its_board_back(
    number: signal.Signals, two: Two, bundle: str
) -> None:
    words = (sys.executable, "-m", "edgekit", "rpc", "serve", "--device", "desk", "--direct")
    far = Process([*words, "--json"], two.far.lab.environment, two.far.lab.folder / "serve.log")
    waits = subprocess.Popen(
        [sys.executable, "-m", "edgekit", "run", bundle, "--device", FAR],
        env=two.near.lab.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: two.far.device("desk")["queue"])
    assert f":{waits.pid}" in two.far.device("desk")["queue"][0]["owner"]
    far.end(number)
    told = waits.communicate(timeout=300)[1]
    assert waits.returncode == 0, told
    assert f":{far.pid} (rpc) has {FAR} since" in told
    near = Process(
        [*words[:5], "--device", FAR, "--direct", "--json"],
        two.near.lab.environment,
        two.near.lab.folder / "serve.log",
    )
    lease = two.far.device("desk")["lease"]
    assert lease["owner"].endswith(f":{near.pid}")
    near.end(number)
    eventually(lambda: two.far.device("desk")["lease"] is None)
    two.far.becomes("desk", "free")


def test_a_line_of_the_other_host_that_leads_nowhere_is_told(two: Two) -> None:
    eventually(lambda: two.near.device("wing").get("host") == "attic")
    done = two.near.edgekit("monitor", "--device", "wing", "--seconds", "1")
    assert done.returncode == 8
    assert f"attic says: nothing listens at {NOWHERE}\n" in done.stderr
