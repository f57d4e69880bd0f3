"""A device with BusyBox and Dropbear: everything works as with bash and OpenSSH."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.building import run_edgekit, write_model
from support.busybox_device import busybox_device
from support.local_bundles import built_bundle, with_patched_kernels
from support.needs import needs
from support.on_device import run_on
from support.rpc_lab import eventually
from support.ssh_server import SshServer, agents_of
from support.vanishing_network import network_before

from edgekit.base.errors import DeviceError
from edgekit.devices.linux import connection as connections
from edgekit.devices.linux import signs_of_life
from edgekit.devices.linux.connection import connect
from edgekit.devices.linux.lease import lease
from edgekit.devices.linux.ssh import SshDevice
from edgekit.profiles.toolchain import load_toolchain

pytestmark = needs("dropbear", "busybox", "mounts", "root")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with busybox_device(tmp_path_factory.mktemp("device")) as running:
        with running.connect() as own:
            said = own.run(("sh", "-c", "command -v bash sftp-server scp; readlink /proc/$$/exe"))
            assert said.output.split() == ["/bin/busybox"]
        yield running


def test_everything_that_a_command_line_does_with_a_device(
    device: SshServer, tmp_path: Path
) -> None:
    extra = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}

    def edgekit(*words: str) -> str:
        ran = run_edgekit(*words, folder=tmp_path, extra=extra)
        assert ran.code == 0, ran.err
        return ran.out

    address = f"root@127.0.0.1:{device.port}"
    known = ("--key", device.key, "--fingerprint", device.fingerprint)
    edgekit("device", "add", "box", "--board", "local", address, *known)
    for scale in (0.1, 0.7):
        write_model(tmp_path / "net.onnx", scale)
        edgekit("deploy", "net.onnx", "--board", "local", "--device", "box", "-o", "out")
    versions = json.loads(edgekit("versions", "--device", "box", "--json"))["versions"]
    assert [version["current"] for version in versions] == [True, False]

    edgekit("rollback", "--device", "box")

    versions = json.loads(edgekit("versions", "--device", "box", "--json"))["versions"]
    assert [version["current"] for version in versions] == [False, True]
    assert json.loads(edgekit("bench", "out", "--device", "box", "--json"))["runs"] > 0
    edgekit("run", "out", "--device", "box")
    told = edgekit("logs", "--device", "box")
    for happened in ("deployed", "rolled back", "measured", "run"):
        assert happened in told
    edgekit("device", "clean", "box")
    assert list((device.root / "agents").iterdir()) == []


def test_a_device_ends_by_itself_when_its_host_is_silent(
    device: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that runs, and a shell that holds the device; seconds stand for half minutes."""
    monkeypatch.setattr(signs_of_life, "SECONDS_WITHOUT_HOST", 6)
    monkeypatch.setattr(connections, "_SECONDS_BETWEEN_QUESTIONS", 0.3)
    endless = with_patched_kernels(built_bundle(tmp_path)[1], tmp_path / "endless", forever=True)
    with network_before(device.port) as network:
        entry = replace(device.entry(), port=network.port)
        known = {"known_hosts": device.known_hosts, "fingerprint": device.fingerprint}
        connect(entry, **known).close()
        failures: list[Exception] = []

        def run() -> None:
            try:
                run_on(SshDevice(entry, load_toolchain("host"), 240, device.known_hosts), endless)
            except DeviceError as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: failures or agents_of(device))
        eventually(lambda: list((device.root / "runs").iterdir()) != [])

        with monkeypatch.context() as impatience:
            impatience.setattr(connections, "SECONDS_OF_SILENCE", 1.0)
            network.vanish()
            thread.join(timeout=240)

        assert "stopped answering" in str(failures[0])
        eventually(lambda: not agents_of(device))
        eventually(lambda: list((device.root / "runs").iterdir()) == [])

        network.come_back()
        holding = connect(entry, **known)
        with pytest.raises(DeviceError), lease(holding, None, wait=None):
            assert len(list((device.root / "runs").iterdir())) == 1
            network.vanish()
            eventually(lambda: list((device.root / "runs").iterdir()) == [])
            holding.run(("true",), timeout=240)
        holding.close()
    with device.connect() as own, lease(own, None, wait=None):
        pass
