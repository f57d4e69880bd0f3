"""A network that vanishes without a word: what runs on the device ends by itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.local_bundles import built_bundle, with_patched_kernels
from support.needs import needs
from support.on_device import run_on
from support.processes import command_lines
from support.rpc_lab import eventually
from support.ssh_server import SshServer, agents_of, ssh_server
from support.vanishing_network import Network, network_before

from edgekit.base.errors import DeviceError
from edgekit.base.files import sha256_file
from edgekit.bundle.folder import Bundle
from edgekit.devices.base import DeviceBusy
from edgekit.devices.linux import connection as connections
from edgekit.devices.linux import signs_of_life
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.lease import lease
from edgekit.devices.linux.probe import ask_device
from edgekit.devices.linux.remote_command import RemoteCommand
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.linux.transfer import Item, Store
from edgekit.devices.serial.lab_host import RemoteHost
from edgekit.profiles.toolchain import load_toolchain

pytestmark = needs("sshd")

PATIENCE = 6
"""Seconds of silence after which a device ends what it runs; a quiet machine needs two."""


@pytest.fixture(autouse=True)
def seconds_instead_of_half_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "SECONDS_WITHOUT_HOST", PATIENCE)
    monkeypatch.setattr(connections, "_SECONDS_BETWEEN_QUESTIONS", 0.3)
    monkeypatch.setenv("EDGEKIT_PURPOSE", "tune")


@pytest.fixture(scope="module", params=["sh", "bash"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SshServer]:
    """Boards have shells whose `read` knows a time-out, and others."""
    shell, programs = shutil.which(request.param), tmp_path_factory.mktemp("programs")
    assert shell is not None
    (programs / "sh").symlink_to(shell)
    environment = f"PATH={programs}:/usr/bin:/bin"
    with ssh_server(tmp_path_factory.mktemp("ssh"), environment=environment) as running:
        with running.connect() as own:
            used = own.run(("sh", "-c", "readlink /proc/$$/exe; true")).output
            assert used == os.path.realpath(shell)
            with lease(own, None, wait=60):
                pass
        yield running


@pytest.fixture
def network(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    with network_before(server.port) as before:
        connect_through(server, before).close()  # its key is known from now on
        before.when_gone = partial(monkeypatch.setattr, connections, "SECONDS_OF_SILENCE", 1.0)
        yield before


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return built_bundle(tmp_path_factory.mktemp("built"))[1]


def connect_through(server: SshServer, network: Network) -> Connection:
    entry = replace(server.entry(), port=network.port)
    return connect(entry, known_hosts=server.known_hosts, fingerprint=server.fingerprint)


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[Exception]]:
    failures: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failures


def runs(mark: str) -> bool:
    return any(mark in " ".join(words) for words in command_lines().values())


def runs_a_model(server: SshServer) -> bool:
    for pid in agents_of(server):
        with suppress(OSError):
            if "/model.so" in Path(f"/proc/{pid}/maps").read_text(errors="replace"):
                return True
    return False


def assert_free(server: SshServer) -> None:
    eventually(server.is_given_back)
    eventually(lambda: list((server.root / "runs").iterdir()) == [])
    with server.connect() as own, lease(own, None, wait=None):
        pass


def test_a_model_that_runs_ends_and_another_host_has_the_device(
    server: SshServer, network: Network, bundle: Bundle, tmp_path: Path
) -> None:
    endless = with_patched_kernels(bundle, tmp_path / "endless", forever=True)
    entry = replace(server.entry(), port=network.port)
    device = SshDevice(entry, load_toolchain("host"), 240, server.known_hosts)
    thread, failures = in_background(lambda: run_on(device, endless))
    eventually(lambda: failures or runs_a_model(server))
    assert not failures
    with server.connect() as own, pytest.raises(DeviceBusy) as busy, lease(own, None, wait=None):
        pass
    told = rf"in use by \S+ on \S+ for `tune` \(process {os.getpid()}\) since \d\d:\d\d \(.+\)$"
    assert re.search(told, busy.value.message)

    network.vanish()

    thread.join(timeout=240)
    assert "stopped answering" in str(failures[0])
    eventually(lambda: not agents_of(server))
    assert_free(server)
    direct = SshDevice(server.entry(), load_toolchain("host"), 240, server.known_hosts)
    outputs = run_on(direct, bundle).outputs
    for name, expected in bundle.reference_outputs().items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)


def test_a_host_that_gave_no_sign_of_life_is_told_why_its_work_ended(
    server: SshServer, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after it was suspended: its connection is still there."""
    endless = with_patched_kernels(bundle, tmp_path / "endless", forever=True)
    monkeypatch.setattr(RemoteCommand, "beat", lambda self: None)
    device = SshDevice(server.entry(), load_toolchain("host"), 240, server.known_hosts)
    with pytest.raises(DeviceError, match="desk lost contact with this host") as caught:
        run_on(device, endless)
    assert "suspended" in str(caught.value.hint)
    assert_free(server)


def test_a_shell_that_holds_a_device_gives_it_back(server: SshServer, network: Network) -> None:
    with connect_through(server, network) as own, lease(own, None, wait=60):
        assert not server.is_given_back()
        network.vanish()
        assert_free(server)


def test_a_command_ends(server: SshServer, network: Network) -> None:
    mark = f"sleep 96{os.getpid()}"
    with connect_through(server, network) as own:

        def vanish(line: str) -> None:
            network.vanish()

        with pytest.raises(DeviceError, match="stopped answering"):
            own.run(("sh", "-c", f"echo go; {mark}; true"), timeout=None, on_line=vanish)
        eventually(lambda: not runs(mark))


def test_a_transfer_ends_and_another_one_goes_on(
    server: SshServer, network: Network, tmp_path: Path
) -> None:
    source = tmp_path / "weights"
    source.write_bytes(os.urandom(24 << 20))
    item = Item(source, "weights", sha256_file(source), source.stat().st_size)

    def push(own: Connection) -> int:
        with lease(own, None, wait=60):
            return Store(own, ask_device(own, None)).push([item], "models/big").bytes_sent

    with connect_through(server, network) as own:
        network.most = network.carried + (4 << 20)
        with pytest.raises(DeviceError, match="stopped answering"):
            push(own)
        eventually(lambda: not runs(own.stream_name))
        assert_free(server)
    with server.connect() as direct:
        assert 0 < push(direct) < item.size
    assert sha256_file(server.root / "models/big/weights") == item.sha256


def test_a_serial_line_of_another_machine_is_given_back(
    server: SshServer, network: Network
) -> None:
    line, other = os.openpty()
    name = os.ttyname(other)
    try:
        with (
            connect_through(server, network) as own,
            RemoteHost(own).held(name) as held,
            held.opened(115200),
        ):
            network.vanish()
            eventually(lambda: not runs(own.stream_name))
            with (
                server.connect() as direct,
                RemoteHost(direct).held(name) as again,
                again.opened(115200),
            ):
                pass
    finally:
        os.close(line)
        os.close(other)


def test_what_is_silent_itself_goes_on_while_the_host_is_there(
    server: SshServer, network: Network, bundle: Bundle
) -> None:
    entry = replace(server.entry(), port=network.port)
    device = SshDevice(entry, load_toolchain("host"), 240, server.known_hosts)
    with device.with_agent() as agent:
        done = agent.connection.run(("sleep", str(PATIENCE + 2)), timeout=240)
        assert done.status == 0
        assert agent.info().machine
        assert Path(agent.scratch).is_dir()
        with server.connect() as own, pytest.raises(DeviceBusy), lease(own, None, wait=None):
            pass
    with connect_through(server, network) as own, lease(own, None, wait=60) as leased:
        time.sleep(PATIENCE + 2)
        assert Path(leased.scratch).is_dir()
        assert not server.is_given_back()


HOLDS_DEVICE = """
import sys
from pathlib import Path
from edgekit.project.devices import SshEntry
from edgekit.devices.linux import signs_of_life
from edgekit.devices.linux.connection import connect
from edgekit.devices.linux.hostkeys import KnownHosts
from edgekit.devices.linux.lease import lease

user, port, key, fingerprint, known, silence = sys.argv[1:]
signs_of_life.SECONDS_WITHOUT_HOST = int(silence)
entry = SshEntry("desk", "local", "10.213.77.1", user, int(port), key)
hosts = KnownHosts(Path(known), Path(known + ".none"))
with connect(entry, known_hosts=hosts, fingerprint=fingerprint) as own, lease(own, None, wait=60):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def network_of_its_own(name: str) -> Iterator[None]:
    """A network namespace that reaches this machine as 10.213.77.1, by a cable called NAME."""
    steps = (
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name inside netns {name}",
        f"ip address add 10.213.77.1/30 dev {name}",
        f"ip link set {name} up",
        f"ip -n {name} address add 10.213.77.2/30 dev inside",
        f"ip -n {name} link set inside up",
    )
    try:
        for step in steps:
            subprocess.run(step.split(), check=True)
        yield
    finally:
        for step in (f"ip link delete {name}", f"ip netns delete {name}"):
            subprocess.run(step.split(), capture_output=True)


@needs("ip", "root", "networks", "cables")
def test_a_cable_that_is_pulled_frees_the_device(tmp_path: Path) -> None:
    name = f"ek{os.getpid() % 1_000_000}"
    with (
        network_of_its_own(name),
        ssh_server(tmp_path / "ssh", extra="ListenAddress 10.213.77.1") as server,
    ):
        with server.connect() as own, lease(own, None, wait=60):
            pass
        words = [server.user, str(server.port), server.key, server.fingerprint]
        words += [str(tmp_path / "known"), str(PATIENCE)]
        with subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", HOLDS_DEVICE, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as host:
            try:
                assert host.stdout is not None
                assert host.stdout.readline() == b"held\n"
                assert not server.is_given_back()
                subprocess.run(["ip", "link", "set", name, "down"], check=True)
                assert_free(server)
            finally:
                host.kill()
