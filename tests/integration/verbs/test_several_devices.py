"""One deployment to several devices at once, each a real SSH server of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.building import Ran, command_line, environment, run_edgekit, write_model
from support.junit import outcomes
from support.libraries import share_agents
from support.local_bundles import built_bundle, with_patched_kernels
from support.needs import needs
from support.rpc_lab import eventually
from support.ssh_server import SshServer, agents_of, ssh_server

from edgekit.base.events import Event, Events, StageEnded, StageStarted
from edgekit.bundle.folder import Bundle
from edgekit.devices.choice import Candidate
from edgekit.devices.device import Device
from edgekit.devices.linux.connection import connect
from edgekit.devices.linux.hostkeys import KnownHosts
from edgekit.devices.linux.ssh import SshDevice
from edgekit.devices.registry import add_device
from edgekit.profiles.toolchain import load_toolchain
from edgekit.verbs.deploy import Deployed, DeployPlan, deploy_bundle
from edgekit.verbs.fleet import on_each

pytestmark = needs("sshd")

NAMES = ("attic", "barn", "cellar")


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds are those of this file."""
    cache = tmp_path_factory.mktemp("cache")
    share_agents(cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE_DIR", str(cache))
        yield


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, SshServer]]:
    with ExitStack() as running:
        yield {name: running.enter_context(ssh_server(tmp_path / name)) for name in NAMES}


@pytest.fixture
def home(tmp_path: Path, servers: dict[str, SshServer]) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / ".git").mkdir()
    config = folder / "config" / "edgekit"
    config.mkdir(parents=True)
    trusted = KnownHosts(config / "known_hosts", config / "none")
    for name, server in servers.items():
        entry = server.entry(name)
        connect(entry, known_hosts=trusted, fingerprint=server.fingerprint).close()
        add_device(entry, file=config / "devices.toml")
    write_model(folder / "model.onnx")
    return folder


def user(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "SSH_AUTH_SOCK": ""}


def edgekit(home: Path, *arguments: str) -> Ran:
    return run_edgekit(*arguments, folder=home, extra=user(home))


def ssh_device(server: SshServer, name: str) -> SshDevice:
    server.connect(name).close()
    return SshDevice(server.entry(name), load_toolchain("host"), 240, server.known_hosts)


def candidates(servers: dict[str, SshServer]) -> list[Candidate]:
    def candidate(name: str, server: SshServer) -> Candidate:
        return Candidate(name, lambda events: ssh_device(server, name))

    return [candidate(name, server) for name, server in servers.items()]


def test_all_devices_of_a_board_get_the_model_at_once(
    home: Path, servers: dict[str, SshServer]
) -> None:
    ran = edgekit(home, "deploy", "model.onnx", "--board", "local", "--all", "--json")

    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert [outcome["device"] for outcome in report["devices"]] == list(NAMES)
    for outcome in report["devices"]:
        assert outcome["error"] is None
        assert outcome["report"]["verification"]["passed"] is True
        assert outcome["report"]["bench"]["runs"] >= 10
    for server in servers.values():
        link = (server.root / "deployments/model/current").readlink()
        assert link.name == report["build"]["bundle"]["digest"]


def test_a_device_that_fails_stops_no_other_and_is_told(
    home: Path, servers: dict[str, SshServer]
) -> None:
    servers["barn"].process.kill()
    servers["barn"].process.wait()
    words = ("deploy", "model.onnx", "--board", "local", "--device", "cellar,barn,attic")

    shown = edgekit(home, *words, "--no-bench")
    told = edgekit(home, *words, "--no-bench", "--json")

    assert shown.code == told.code == 10
    assert "model is on 2 of 3 devices" in shown.out
    assert "1 of 3 devices failed: barn" in shown.err
    assert "barn: " in shown.err
    assert "refuses connections" in shown.err
    (cellar, barn, attic) = json.loads(told.out)["devices"]
    assert (barn["report"], barn["error"]["exit_code"]) == (None, 8)
    assert barn["error"]["type"] == "DeviceError"
    assert barn["error"]["hint"]
    assert cellar["error"] is attic["error"] is None
    assert (servers["cellar"].root / "deployments/model/current").is_symlink()
    assert not (servers["barn"].root / "deployments").exists()


def test_a_bundle_is_run_verified_and_measured_on_several_at_once(
    home: Path, servers: dict[str, SshServer]
) -> None:
    model = ("build", "model.onnx", "--board", "local", "-o", "bundle")
    assert edgekit(home, *model).code == 0

    ran = edgekit(home, "run", "bundle", "--all", "--out", "out", "--json")
    verified = edgekit(home, "verify", "bundle", "--device", "attic,cellar")
    measured = edgekit(home, "bench", "bundle", "--device", "barn,attic", "--runs", "5", "--json")

    assert (ran.code, verified.code, measured.code) == (0, 0, 0), verified.err
    outcomes = json.loads(ran.out)["devices"]
    assert [outcome["report"]["device"] for outcome in outcomes] == list(NAMES)
    assert sorted(folder.name for folder in (home / "out").iterdir()) == list(NAMES)
    assert "model: verified on 2 of 2 devices" in verified.out
    assert "attic" in verified.out
    reports = [outcome["report"] for outcome in json.loads(measured.out)["devices"]]
    assert [(report["device"], report["runs"]) for report in reports] == [("barn", 5), ("attic", 5)]
    assert all(report["load"] > 0 for report in reports)


def test_a_device_that_is_gone_is_a_row_and_an_error_of_every_command(
    home: Path, servers: dict[str, SshServer]
) -> None:
    assert edgekit(home, "build", "model.onnx", "--board", "local", "-o", "bundle").code == 0
    servers["barn"].process.kill()
    servers["barn"].process.wait()

    for words in (("run",), ("verify",), ("bench", "--runs", "3")):
        ran = edgekit(home, words[0], "bundle", *words[1:], "--device", "attic,barn")
        assert ran.code == 10, ran.err
        assert "on 1 of 2 devices" in ran.out
        assert "FAILED" in ran.out
        assert "1 of 2 devices failed: barn" in ran.err

    ran = edgekit(home, "verify", "bundle", "--device", "attic,barn", "--junit", "out.xml")
    assert ran.code == 10, ran.err
    found = outcomes(home / "out.xml")
    assert found.pop(("bundle.barn", "verify")) == "error"
    assert {group for group, _ in found} == {"bundle.attic"}
    assert set(found.values()) == {"passed"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--device", "attic,barm"), "did you mean barn?"),
        (("--device", "attic,,barn"), "no list of different devices"),
        (("--device", "attic,attic"), "no list of different devices"),
        (("--device", "attic", "--all"), "leave one of them out"),
        (("--twin", "--all"), "leave one of them out"),
        (("--twin", "--device", "attic,barn"), "leave one out"),
    ],
)
def test_devices_that_cannot_be_meant_are_refused_before_anything_is_built(
    home: Path, words: tuple[str, ...], says: str
) -> None:
    ran = edgekit(home, "deploy", "model.onnx", "--board", "local", *words)

    assert ran.code == 2
    assert says in ran.err
    assert not (home / "build").exists()


def test_all_of_a_board_that_no_device_is(home: Path) -> None:
    ran = edgekit(home, "deploy", "model.onnx", "--board", "rpi4", "--all")

    assert ran.code == 8
    assert "no device is known for the board rpi4" in ran.err


def test_what_is_shown_of_several_devices_names_each(
    servers: dict[str, SshServer], tmp_path: Path
) -> None:
    bundle = built_bundle(tmp_path)[1]
    events: list[Event] = []

    outcomes = on_each(candidates(servers), deployment(bundle), Events(events.append))

    assert all(outcome.report is not None for outcome in outcomes)
    started = [event.title for event in events if isinstance(event, StageStarted)]
    ended = [event.title for event in events if isinstance(event, StageEnded)]
    assert sorted(started) == sorted(ended)
    assert len(set(started)) == len(started), "no two rows of the display are the same"
    for title in started:
        assert sum(name in title.replace(":", "").split() for name in NAMES) == 1


def deployment(bundle: Bundle) -> Callable[[Device, Events], Deployed]:
    def work(device: Device, events: Events) -> Deployed:
        return deploy_bundle(bundle, device, DeployPlan(bench=None), events)

    return work


def test_ctrl_c_ends_the_work_on_every_device(
    home: Path, servers: dict[str, SshServer], tmp_path: Path
) -> None:
    endless = with_patched_kernels(built_bundle(tmp_path)[1], tmp_path / "l", forever=True)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from edgekit.bundle.folder import open_bundle\n"
        "from edgekit.profiles.board import load_board\n"
        "from edgekit.verbs.deploy import DeployPlan, deploy_bundle\n"
        "from edgekit.devices.choice import devices_for\n"
        "from edgekit.devices.registry import known_devices\n"
        "from edgekit.verbs.fleet import on_each\n"
        "known = {name: known.entry for name, known in known_devices(None).items()}\n"
        f"bundle = open_bundle(Path({str(endless.path)!r}))\n"
        "work = lambda device, events: deploy_bundle(bundle, device, DeployPlan(), events)\n"
        "on_each(devices_for(load_board('local'), None, known), work)\n"
    )
    process = subprocess.Popen(
        [*command_line()[:1], "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, cwd=home, env=environment(user(home)),
    )  # fmt: skip
    eventually(lambda: process.poll() is not None or all(map(agents_of, servers.values())))
    assert process.poll() is None, process.communicate()[1].decode()

    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=240)

    assert process.returncode != 0
    for server in servers.values():
        eventually(lambda server=server: not agents_of(server))  # type: ignore[misc]
        eventually(lambda server=server: not list((server.root / "runs").iterdir()))  # type: ignore[misc]
        assert not (server.root / "deployments").exists()


def test_two_deployments_to_one_device_at_the_same_time_come_one_after_the_other(
    servers: dict[str, SshServer], tmp_path: Path
) -> None:
    server = servers["attic"]
    first = built_bundle(tmp_path)[1]
    failures: list[BaseException] = []
    done: list[Deployed] = []

    def deploy() -> None:
        try:
            done.append(deployment(first)(ssh_device(server, "attic"), Events(lambda event: None)))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)

    threads = [threading.Thread(target=deploy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    befores = [deployed.version.before for deployed in done if deployed.version is not None]
    assert sorted(befores, key=str) == sorted([None, first.digest, first.digest], key=str)
    assert (server.root / "deployments/model/current").readlink().name == first.digest
