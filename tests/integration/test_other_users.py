"""A second user of this machine tries every port that edgekit opens, while edgekit works."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.building import write_model
from support.emulated_arm import arm_agent
from support.local_bundles import built_bundle
from support.needs import ARM_PROGRAMS, needs
from support.other_user import (
    GONE,
    UID,
    Listening,
    answers_to_another,
    assert_all_refused,
    held_by_another,
    listening,
)
from support.ports import CLOSED_PORT
from support.processes import descendants
from support.rpc_lab import Lab, Process, eventually, rpc_lab
from support.ssh_server import agents_of

from edgekit.agent.build import build_runtime
from edgekit.farm.hosts.forwarded_device import ForwardedDevice
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from edgekit.rpc.protocol import TrackerAddress, TrackerClient, TrackerGone

pytestmark = needs("root", "sshd", "g++", "gcc")

KEY = "desk"
SECONDS_BETWEEN_LOOKS = 0.2
GREETING = b"q\xf2\x0f\x00\x08\x00\x00\x00client:k"
"""The greeting that TVM's RPC clients send."""
MISMATCH = b"s\xf2\x0f\x00"
STOCK_CLIENT = """
import sys
from tvm import rpc

remote = rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request(sys.argv[2], session_timeout=60)
print(remote.get_function("edgekit.tvm_version")())
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with rpc_lab(tmp_path_factory.mktemp("others")) as running:
        yield running


def opened_by(lab: Lab, pids: Iterable[int]) -> list[Listening]:
    """The ports of processes and all that they started, on this machine and on the device."""
    family = [pid for first in pids for pid in (first, *descendants(first))]
    return listening(family + agents_of(lab.ssh))


def test_every_port_of_a_tracker_and_a_device_is_for_its_user(lab: Lab) -> None:
    lab.start_tracker()
    served = lab.serve(KEY)
    eventually(lambda: lab.free(KEY) == 1)
    server = lab.servers[KEY]
    found = opened_by(lab, [lab.tracker.pid, server.pid])
    of_agent = [one for one in found if one.pid in lab.agents()]

    assert {lab.port, served["port"]} < {one.port for one in found}
    assert len(of_agent) == 1  # that for the tracker is open while its connection is brought only
    assert_all_refused(found)
    eventually(lambda: f"a connection of user {UID} " in lab.tracker.errors())
    eventually(lambda: f"a connection of user {UID} to port {served['port']}" in server.errors())
    (port,) = (one.port for one in of_agent)
    eventually(lambda: f"a connection of user {UID} to port {port} " in server.errors())
    # No port of the device leads to this machine, and every one that was tried still serves.
    sessions = [pid for session in lab.ssh.sessions() for pid in lab.family(session)]
    assert {one.pid for one in listening(sessions)} <= set(lab.agents())
    client = subprocess.run(
        [sys.executable, "-c", STOCK_CLIENT, str(lab.port), KEY],
        env=lab.environment,
        capture_output=True,
        text=True,
    )
    assert client.returncode == 0, client.stderr
    assert client.stdout.startswith("0.27")
    lab.servers[KEY].end()
    lab.stop_tracker()


def test_every_port_of_a_farm_and_its_socket_are_for_its_user(lab: Lab) -> None:
    words = lab.command("farm", "up", "--port", str(lab.port), "--json", "-v")
    keeper = Process(words, lab.environment, lab.folder / "farm.log")
    try:
        eventually(lambda: lab.free("local") == 1)
        found = opened_by(lab, [keeper.pid])
        assert lab.port in {one.port for one in found}
        assert len(found) == 3  # the tracker's, the device's on this machine, and its agent's
        assert_all_refused(found)
        eventually(lambda: f"desk: a connection of user {UID} " in keeper.errors())

        control = Path(lab.environment["XDG_DATA_HOME"]) / "edgekit" / "farm" / "control.sock"
        assert control.stat().st_mode & 0o777 == 0o600
        assert control.parent.stat().st_mode & 0o777 == 0o700
        # Even where somebody opens all that leads to it.
        for part in (control, *list(control.parents)[:-1]):
            if not part.stat().st_mode & 0o001:
                part.chmod(part.stat().st_mode | 0o007)
        assert said_by_socket(control, UID) == ""
        assert said_by_socket(control, 0).startswith("{")
        for what in ("reserve", "take", "release"):
            wanted = {"do": what, "device": "desk", "owner": "other@lab:1", "purpose": "mine"}
            assert said_by_socket(control, UID, {**wanted, "seconds": 600, "force": True}) == ""
        status = json.loads(subprocess.run(
            lab.command("farm", "status", "--json"), env=lab.environment, capture_output=True
        ).stdout)  # fmt: skip
        assert status["devices"][0]["reservation"] is None
        assert status["devices"][0]["lease"] is None
        assert lab.free("local") == 1
    finally:
        keeper.end()


def test_the_page_of_a_farm_is_for_its_user(lab: Lab) -> None:
    words = lab.command("farm", "web", "--port", "0", "--json")
    web = Process(words, lab.environment, lab.folder / "web.log")
    try:
        # An agent of the test before may be about to end.
        (one,) = (one for one in opened_by(lab, [web.pid]) if one.pid not in lab.agents())
        assert_all_refused([one])
        assert f"a connection of user {UID} to port {one.port} " in web.errors()
        page = http.client.HTTPConnection("127.0.0.1", one.port, timeout=240)
        page.request(
            "GET", "/style.css", headers={"Authorization": f"Bearer {web.report['token']}"}
        )
        assert page.getresponse().status == 200
    finally:
        web.end()


def test_what_stands_for_another_hosts_device_is_for_its_user() -> None:
    told: list[str] = []
    nowhere = TrackerAddress("127.0.0.1", CLOSED_PORT)
    connection: Any = None  # asked for once a client has the offer
    device = ForwardedDevice("k", nowhere, lambda: nowhere, connection, told.append)
    try:
        assert answers_to_another([("127.0.0.1", device.port)]) == {device.port: {""}}
        with socket.create_connection(("127.0.0.1", device.port), timeout=240) as client:
            client.sendall(GREETING)
            assert client.recv(4) == MISMATCH
    finally:
        device.close()
    assert len(told) == 1
    assert f"user {UID} to port {device.port} " in told[0]


TRACKER_OF_ANOTHER = """\
import os, socket, sys
os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    client.sendall(client.recv(4))
"""


@pytest.mark.parametrize("uid", [UID, 0])
def test_a_tracker_of_another_user_is_not_asked(uid: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", TRACKER_OF_ANOTHER, str(uid)],
        stdout=subprocess.PIPE,
        cwd="/",
    ) as process:
        try:
            assert process.stdout is not None
            address = TrackerAddress("127.0.0.1", int(process.stdout.readline()))
            if uid == 0:
                with TrackerClient(address):
                    return
            with pytest.raises(TrackerGone, match=f"port belongs to user {UID}"):
                TrackerClient(address)
        finally:
            process.kill()


def said_by_socket(path: Path, uid: int, request: dict[str, object] | None = None) -> str:
    script = (
        "import os, socket, sys\n"
        "path, uid, request = sys.argv[1], int(sys.argv[2]), sys.argv[3]\n"
        "os.setgroups([]), os.setgid(uid), os.setuid(uid)\n"
        "stream = socket.socket(socket.AF_UNIX)\n"
        "stream.connect(path)\n"
        "try:\n"
        "    stream.sendall(request.encode() + b'\\n')\n"
        "    print(stream.recv(100).decode())\n"
        "except ConnectionError:\n"
        "    pass\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-c", script, str(path), str(uid)),
            json.dumps(request or {"do": "status"}),
        ],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param((), id="here"),
        pytest.param(("--devices", "desk"), id="over SSH", marks=pytest.mark.slow),
    ],
)
def test_every_port_of_a_search_is_for_its_user(
    lab: Lab, devices: tuple[str, ...], tmp_path: Path
) -> None:
    words = lab.command(
        *("tune", str(write_model(tmp_path / "small.onnx")), "--board", "local", *devices),
        *("--trials", "12", "--json"),
    )
    log = tmp_path / "log"
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with log.open("wb") as errors:
        search = subprocess.Popen(
            words,
            env={**lab.environment, "EDGEKIT_STORE": store},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    tried: dict[int, set[str]] = {}
    expected = 3 if devices else 2  # a tracker, an agent, and a port that leads to it through SSH
    while search.poll() is None:
        new = [o for o in opened_by(lab, [search.pid]) if o.port not in tried]
        tried.update(answers_to_another((one.host, one.port) for one in new))
        time.sleep(SECONDS_BETWEEN_LOOKS)
    output, _ = search.communicate()

    assert search.returncode == 0, log.read_text()
    assert json.loads(output)["trials"] == 12
    assert sum(said == {""} for said in tried.values()) == expected
    assert set().union(*tried.values()) <= {"", GONE}
    assert f"a connection of user {UID} to port " in log.read_text()


def test_a_measurement_opens_no_port(lab: Lab, tmp_path: Path) -> None:
    _, bundle = built_bundle(tmp_path)
    words = lab.command("bench", str(bundle.path), "--device", "desk", "--json")
    report = tmp_path / "report"
    with (
        report.open("wb") as output,
        subprocess.Popen(
            words, env=lab.environment, stdin=subprocess.DEVNULL, stdout=output
        ) as bench,
    ):
        looks, found = 0, []
        while bench.poll() is None:
            found += opened_by(lab, [bench.pid])
            looks += bool(agents_of(lab.ssh))
            time.sleep(SECONDS_BETWEEN_LOOKS)
    assert json.loads(report.read_text())["device"] == "desk"

    assert looks
    assert found == []


@pytest.fixture(scope="module")
def agent() -> Path:
    toolchain = load_toolchain(load_board("local").toolchain)
    return build_runtime(toolchain, toolchain.triple.partition("-")[0]).program


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[Iterator[Any]]:
    """What an agent says, until the block ends and the agent with it."""
    with process:
        try:
            assert process.stdout is not None
            yield map(json.loads, process.stdout)
        finally:
            process.kill()


def started(agent: Path, *options: str) -> subprocess.Popen[str]:
    words = [str(agent), "serve", "--key", "k", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def assert_serves(host: str, port: int) -> None:
    with greeted(host, port):
        pass


@contextmanager
def greeted(host: str, port: int) -> Iterator[None]:
    """A session of this test's own user."""
    with socket.create_connection((host, port), timeout=240) as client:
        client.sendall(GREETING)
        assert client.recv(4) == GREETING[:4]
        yield


def test_an_agent_takes_its_tracker_from_its_user_only(agent: Path, tmp_path: Path) -> None:
    """The tracker's connection is brought to a port of the device that is open for that moment."""
    process = started(agent, "--tracker-dials", "--workspace", str(tmp_path))
    with running(process) as said:
        own, wanted = next(said)["port"], next(said)
        assert wanted["state"] == "wants tracker"
        assert answers_to_another([("127.0.0.1", wanted["port"])]) == {wanted["port"]: {""}}
        with socket.create_connection(("127.0.0.1", wanted["port"]), timeout=240) as tracker:
            assert tracker.recv(4) == b"q\xf2\x02\x00"
            assert [one.port for one in listening([process.pid])] == [own]


@pytest.mark.slow
@needs(*ARM_PROGRAMS)
def test_where_a_kernel_has_no_sock_diag_an_agent_reads_the_tables(tmp_path: Path) -> None:
    """QEMU passes on a program's sockets, and none of that kind."""
    with running(arm_agent("serve", "--key", "k", "--workspace", str(tmp_path))) as said:
        port = next(said)["port"]
        assert answers_to_another([("127.0.0.1", port)]) == {port: {""}}
        assert_serves("127.0.0.1", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0"])
def test_an_agent_alone_serves_its_user_while_another_one_tries(
    agent: Path, host: str, tmp_path: Path
) -> None:
    """As benchmarks start it for devices that they simulate."""
    loopback = "::1" if host == "::1" else "127.0.0.1"
    with running(started(agent, "--host", host, "--workspace", str(tmp_path))) as said:
        port = next(said)["port"]
        assert answers_to_another([(loopback, port)]) == {port: {""}}
        with greeted(loopback, port):
            assert answers_to_another([(loopback, port)]) == {port: {""}}
        first, *others = (next(said) for _ in range(3))

    assert first["state"] == "turned away"
    assert first["reason"].startswith(f"a connection of user {UID} to port {port} was refused")
    assert [each["state"] for each in others] == ["in use", "free"]


def test_connections_of_others_that_stay_open_keep_nobody_from_an_agent(
    agent: Path, tmp_path: Path
) -> None:
    """More of them than a listener has room for."""
    with running(started(agent, "--workspace", str(tmp_path))) as said:
        port = next(said)["port"]
        with held_by_another(port, count=40):
            assert_serves("127.0.0.1", port)
            with greeted("127.0.0.1", port), held_by_another(port, count=40):
                pass
            assert_serves("127.0.0.1", port)
