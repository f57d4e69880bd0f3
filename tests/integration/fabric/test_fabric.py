"""Fabfiles on devices: fabric's connections log in as edgekit does, and hold what they change."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.building import Ran, command_line, environment, run_edgekit
from support.needs import needs
from support.rpc_lab import eventually
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import DeviceError, UsageError
from edgekit.fabric import connection, group

pytestmark = needs("sshd")

FABFILE = """
from fabric import task

@task
def prepare(c):
    c.run("cd; echo prepared >>log", hide=True)

@task(pre=[prepare])
def kitchen(c):
    c.run("cd; echo kitchen $(head -1 .local/share/edgekit/holder) >>log")
    print("printed by the task")

@task
def broken(c):
    c.run("echo why >&2; exit 7")
"""


AT_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SshServer]]:
    folder = tmp_path_factory.mktemp("lab")
    with ssh_server(folder / "one") as one, ssh_server(folder / "two") as two:
        yield {"one": one, "two": two}


@pytest.fixture
def project(tmp_path: Path, servers: dict[str, SshServer], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two known devices, and a user of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    known = tmp_path / "config" / "edgekit" / "known_hosts"
    known.parent.mkdir(parents=True)
    lines, tables = [], []
    for name, server in servers.items():
        key = " ".join((server.folder / "host.pub").read_text().split()[:2])
        lines.append(f"[127.0.0.1]:{server.port} {key}\n")
        tables.append(
            f'[devices.{name}]\nboard = "local"\nhost = "127.0.0.1"\nport = {server.port}\n'
            f'user = "{server.user}"\nkey = "{server.key}"\n'
        )
    known.write_text("".join(lines))
    (tmp_path / "edgekit.toml").write_text("schema = 1\n" + "\n".join(tables))
    (tmp_path / "fabfile.py").write_text(FABFILE)
    return tmp_path


def edgekit(project: Path, *words: str) -> Ran:
    return run_edgekit("device", *words, folder=project)


def test_a_connection_runs_commands_and_copies_files(
    project: Path, servers: dict[str, SshServer]
) -> None:
    home = servers["one"].home
    with connection("one", folder=project) as device:
        assert device.run("echo $((6 * 7))", hide=True, in_stream=False).stdout == "42\n"
        assert device.run("exit 3", warn=True, hide=True, in_stream=False).exited == 3
        assert device.run("cat", in_stream=io.StringIO("typed\n"), hide=True).stdout == "typed\n"
        device.put(io.StringIO("text"), f"{home}/note")
        assert (home / "note").read_text() == "text"
        assert device.device.name == "one"


def test_an_unknown_host_key_is_refused(project: Path) -> None:
    (project / "config" / "edgekit" / "known_hosts").unlink()
    device = connection("one", folder=project)
    with pytest.raises(DeviceError, match="host key of"):
        device.run("true")
    # Nor does fabric's own way of connecting accept it.
    with pytest.raises(Exception, match="not found in known_hosts"):
        device.client.connect("127.0.0.1", device.port, key_filename=str(project / "none"))


def test_a_group_works_on_all_devices_of_a_board(
    project: Path, servers: dict[str, SshServer]
) -> None:
    with group(board="local", folder=project) as all_of_it:
        results = all_of_it.run("printf %s $HOME", hide=True, in_stream=False)
    told = {device.device.name: result.stdout for device, result in results.items()}
    assert told == {name: str(server.home) for name, server in servers.items()}
    with group("two", folder=project) as named:
        assert [device.device.name for device in named] == ["two"]


def test_a_command_ends_with_its_connection(project: Path, servers: dict[str, SshServer]) -> None:
    home = servers["one"].home
    with connection("one", folder=project) as device:
        script = f"echo $$ >{home}/pid; sleep 6543"
        running = device.run(script, asynchronous=True, hide=True, in_stream=False)
        eventually(lambda: (home / "pid").exists() and (home / "pid").read_text().strip())
        pid = int((home / "pid").read_text())
        device.close()
    del running
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_device_without_a_login_is_refused(project: Path) -> None:
    with pytest.raises(UsageError, match="has no login"):
        connection("local", folder=project)


def test_tasks_of_a_fabfile_run_on_held_devices(
    project: Path, servers: dict[str, SshServer]
) -> None:
    ran = edgekit(project, "provision", "--all", "fabfile.py", "kitchen", "--json")

    assert ran.code == 0, ran.err
    assert "printed by the task" in ran.err
    report = json.loads(ran.out)
    assert [d["report"]["tasks"] for d in report["devices"]] == [["prepare", "kitchen"]] * 2
    for server in servers.values():
        prepared, kitchen = (server.home / "log").read_text().splitlines()
        assert prepared == "prepared"
        assert kitchen.startswith("kitchen ")
        assert "for `device`" in kitchen  # the lock says so to others who wait


def test_a_task_that_fails_says_which_command(project: Path) -> None:
    ran = edgekit(project, "provision", "--device", "one", "fabfile.py", "broken")

    assert ran.code == 10
    assert "ended with exit code 7 on one: echo why >&2; exit 7" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fabfile.py",), "no task of fabfile.py is chosen"),
        (("fabfile.py", "kitchn"), "has no task 'kitchn'"),
        (("missing.py",), "is no Python file"),
        (("bad.py",), "cannot be loaded: SyntaxError"),
        (("empty.py",), "decorate a function with @task"),
    ],
)
def test_mistakes_in_fabfiles_are_one_sentence(
    project: Path, words: tuple[str, ...], message: str
) -> None:
    (project / "bad.py").write_text("def (\n")
    (project / "empty.py").write_text("")

    ran = edgekit(project, "provision", "--device", "one", *words)

    assert ran.code == 2
    assert message in ran.err
    assert "hint: " in ran.err


def test_a_shell_is_opened_in_the_terminal(project: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AT_ITS_TERMINAL, *command_line("device", "shell", "--device=one")],
        stdin=terminal, stdout=terminal, stderr=terminal, cwd=project, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while b"7006652" not in shown:
        if select.select([controller], [], [], 1)[0]:
            shown += os.read(controller, 4096)
        else:  # what is typed before the shell is there may be dropped
            os.write(controller, b"echo $((1234 * 5678))\n")
    os.write(controller, b"exit\n")
    try:
        while data := os.read(controller, 4096):
            shown += data
    except OSError:
        pass  # the terminal is closed
    os.close(controller)
    assert process.wait(timeout=240) == 0, shown
