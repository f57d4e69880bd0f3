"""edgekit device, as a person types it, with a real SSH server behind it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.building import Ran, command_line, environment, run_edgekit, write_model
from support.needs import needs
from support.ports import free_port
from support.ssh_server import SshServer, ssh_server

pytestmark = needs("sshd")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "ssh") as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".git").mkdir()
    return tmp_path / "user"


def edgekit(home: Path, *arguments: str) -> Ran:
    extra = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "SSH_AUTH_SOCK": ""}
    return run_edgekit(*arguments, folder=home, extra=extra)


def added(home: Path, server: SshServer, name: str = "desk", *more: str) -> Ran:
    return edgekit(
        home, "device", "add", name, f"{server.user}@127.0.0.1:{server.port}", "--board", "local",
        "--key", server.key, "--fingerprint", server.fingerprint, *more,
    )  # fmt: skip


def test_the_life_of_a_device(home: Path, server: SshServer) -> None:
    ran = added(home, server, "desk", "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["device"]["machine"] == os.uname().machine
    assert report["device"]["fingerprint"] == server.fingerprint

    (listed,) = json.loads(edgekit(home, "device", "list", "--json").out)
    assert (listed["name"], listed["board"]) == ("desk", "local")
    assert "desk is ready" in edgekit(home, "device", "check", "desk").out

    assert "removed 0 models" in edgekit(home, "device", "clean", "desk").out
    assert edgekit(home, "device", "remove", "desk").code == 0
    assert "no devices are known" in edgekit(home, "device", "list").out
    assert edgekit(home, "device", "check", "desk").code == 2


def test_a_model_is_deployed_to_a_device_over_ssh(home: Path, server: SshServer) -> None:
    write_model(home / "model.onnx")
    added(home, server)

    words = ("deploy", "model.onnx", "--board", "local", "--device", "desk", "--json")
    ran = edgekit(home, *words)

    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["verification"]["device"] == "desk"
    assert report["verification"]["passed"] is True
    assert report["bench"]["runs"] >= 10
    assert len(list((server.root / "models").iterdir())) == 1

    bundle = report["build"]["bundle"]["path"]
    ran = edgekit(
        home, "bench", bundle, "--device", "desk", "--profile", "1", "--runs", "3", "--json"
    )
    assert ran.code == 0, ran.err
    profile = json.loads(ran.out)["profile"]
    assert all(profile["limits"][kind] > 1e7 for kind in ("float32", "integers", "bytes"))
    assert list((server.root / "runs").iterdir()) == [], "the program is gone with its lease"


def test_without_a_person_and_a_fingerprint_nothing_is_trusted(
    home: Path, server: SshServer
) -> None:
    words = ("device", "add", "desk", f"{server.user}@127.0.0.1:{server.port}", "--board", "local")
    ran = edgekit(home, *words, "--key", server.key)

    assert ran.code == 8
    assert server.fingerprint in ran.err
    assert "--fingerprint" in ran.err
    assert "no devices are known" in edgekit(home, "device", "list").out

    wrong = edgekit(home, *words, "--key", server.key, "--fingerprint", "SHA256:" + "A" * 43)
    assert wrong.code == 8
    assert server.fingerprint in wrong.err
    assert not (home / "config" / "edgekit" / "known_hosts").exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 8), ("\n", 8)])
def test_a_person_is_asked_about_a_new_host_key(
    home: Path, server: SshServer, answer: str, code: int
) -> None:
    controller, terminal = pty.openpty()
    extra = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "SSH_AUTH_SOCK": ""}
    process = subprocess.Popen(
        command_line(
            "device", "add", "desk", f"{server.user}@127.0.0.1:{server.port}", "--board", "local",
            "--key", server.key, "--no-color",
        ),
        stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, cwd=home, env=environment(extra),
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(controller, 4096)
    os.write(controller, answer.encode())
    try:
        while data := os.read(controller, 4096):
            shown += data
    except OSError:
        pass  # the terminal is closed
    assert process.stdout is not None
    process.stdout.read()
    os.close(controller)

    assert process.wait(timeout=240) == code, shown
    assert server.fingerprint in shown.decode()
    assert (home / "config" / "edgekit" / "known_hosts").exists() == (code == 0)


@pytest.mark.parametrize(
    "words",
    [
        ("add", "desk", "-oProxyCommand=touch x", "--board", "local"),
        ("add", "desk", "--board", "local", "--", "-oProxyCommand=touch${IFS}x"),
        ("add", "desk", "me@$(touch x)", "--board", "local"),
        ("add", "desk", "me@host\ntouch x", "--board", "local"),
        ("add", "../desk", "me@host", "--board", "local"),
        ("add", "desk", "me@host", "--board", "mps2-an386"),
        ("add", "desk", "me@host"),
        ("add", "desk", "me@host", "--board", "local", "--fingerprint", "yes"),
        ("add", "desk", "me@host", "--board", "local", "--proxy", "-oProxyCommand=touch x"),
    ],
)
def test_what_could_be_something_else_is_a_usage_error(home: Path, words: tuple[str, ...]) -> None:
    ran = edgekit(home, "device", *words)

    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert "hint: " in ran.err
    assert "Traceback" not in ran.err
    assert not (home / "x").exists()


def test_a_device_that_is_not_there_is_not_remembered(home: Path, server: SshServer) -> None:
    ran = edgekit(
        home, "device", "add", "desk", f"pi@127.0.0.1:{free_port()}", "--board", "local",
        "--fingerprint", server.fingerprint,
    )  # fmt: skip

    assert ran.code == 8
    assert "refuses connections" in ran.err
    assert "no devices are known" in edgekit(home, "device", "list").out


@needs("no-aarch64")
def test_a_board_that_the_device_is_not_is_refused(home: Path, server: SshServer) -> None:
    ran = edgekit(
        home, "device", "add", "desk", f"{server.user}@127.0.0.1:{server.port}", "--board", "rpi4",
        "--key", server.key, "--fingerprint", server.fingerprint,
    )  # fmt: skip

    assert ran.code == 8
    assert "but the board rpi4 one of aarch64" in ran.err


def test_a_command_for_devices_says_what_is_missing_where_none_is_named(home: Path) -> None:
    none = edgekit(home, "versions")
    assert none.code == 8
    assert "no device is known" in none.err and "device add" in none.err and "--twin" in none.err

    (home / "config" / "edgekit").mkdir(parents=True)
    (home / "config" / "edgekit" / "devices.toml").write_text(
        'schema = 1\n[devices.attic]\nboard = "rpi4"\nhost = "192.0.2.1"\n'
        '[devices.barn]\nboard = "rpi5"\nhost = "192.0.2.2"\n'
    )
    several = edgekit(home, "logs")
    assert several.code == 2
    assert "attic, barn" in several.err and "--device" in several.err


def test_names_of_devices_are_completed(home: Path, server: SshServer) -> None:
    added(home, server, "desk")
    added(home, server, "hall")
    extra = {
        "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"),
        "_EDGEKIT_COMPLETE": "bash_complete",
        "COMP_WORDS": "edgekit device check h", "COMP_CWORD": "3",
    }  # fmt: skip

    ran = run_edgekit(folder=home, extra=extra)

    assert ran.out.split() == ["word,hall"]


def test_the_power_of_a_silent_device_is_switched_by_its_own_command(
    home: Path, server: SshServer, tmp_path: Path
) -> None:
    switch = tmp_path / "switch"
    switch.write_text(
        f"#!/bin/sh\necho $1 >> {tmp_path}/log\n"
        f"if [ $1 = on ]; then kill -CONT {server.process.pid}; fi\n"
    )
    switch.chmod(0o755)
    ran = added(home, server, "desk", "--power", f"sh:{switch} $1")
    assert ran.code == 0, ran.err
    ran = edgekit(home, "device", "power", "off", "desk", "--json")
    assert json.loads(ran.out) == {"name": "desk", "action": "off"}

    os.kill(server.process.pid, signal.SIGSTOP)
    ran = edgekit(home, "device", "exec", "--device", "desk", "--", "echo", "back")
    assert ran.out == "back\n", ran.err
    assert "its power is switched off and on" in ran.err
    assert (tmp_path / "log").read_text().split() == ["off", "off", "on"]

    switch.write_text("#!/bin/sh\necho the outlet is broken\nexit 3\n")
    ran = edgekit(home, "device", "power", "on", "desk")
    assert ran.code == 8
    assert "did not switch the power of desk on: it ended with 3" in ran.err
    assert "the outlet is broken" in ran.err
    assert added(home, server, "plain").code == 0
    ran = edgekit(home, "device", "power", "cycle", "plain")
    assert ran.code == 2
    assert "nothing is known that switches the power of plain" in ran.err


@pytest.mark.parametrize("switch", ["outlet 3", "usb:1-1", "snmp:other@host/1", "labgrid"])
def test_what_switches_no_power_is_refused(home: Path, switch: str) -> None:
    ran = edgekit(
        home, "device", "add", "desk", "pi@nowhere.invalid", "--board", "local", "--power", switch
    )
    assert ran.code == 2
    assert "switches no power" in ran.err


def test_a_project_sets_no_power_command_without_trust(home: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    (home / "edgekit.toml").write_text(
        'schema = 1\n[devices.desk]\nboard = "local"\nhost = "127.0.0.1"\n'
        f'power = "sh:touch {done}"\n'
    )
    extra = {"HOME": str(home), "EDGEKIT_TRUSTED_PATH": ""}
    ran = run_edgekit("device", "power", "cycle", "desk", folder=home, extra=extra)
    assert ran.code == 14
    assert "what follows sh: is run" in ran.err
    assert not done.exists()


@pytest.mark.parametrize(
    "words",
    [("logs", "--device", "shed", "--twin"), ("deploy", "net.onnx", "--device", "shed", "--twin")],
)
def test_a_twin_that_there_is_not_is_called_a_twin(home: Path, words: tuple[str, ...]) -> None:
    write_model(home / "net.onnx")
    ran = edgekit(home, *words)
    assert ran.code == 2
    assert "there is no twin 'shed'" in ran.err
    assert "edgekit twin up BOARD --name shed makes one" in ran.err
