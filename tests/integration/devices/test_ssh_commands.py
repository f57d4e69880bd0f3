"""Programs that ~/.ssh/config names: a ProxyCommand and a Match exec, on a real SSH server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.hostile_folder import HostileFolder, hostile_folder
from support.needs import needs
from support.rpc_lab import eventually
from support.ssh_server import SshServer, ssh_server

from edgekit.base.errors import DeviceError
from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.ssh_config import route_to
from edgekit.project.devices import SshEntry

pytestmark = needs("sshd")

_RELAY = """\
import os, socket, sys, threading

with open(sys.argv[3], "w") as note:
    note.write("\\n".join([str(os.getpid()), os.getcwd(), os.environ["PATH"]]))
reached = socket.create_connection((sys.argv[1], int(sys.argv[2])))

def bring():
    while data := os.read(0, 65536):
        reached.sendall(data)

threading.Thread(target=bring, daemon=True).start()
while data := reached.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


@dataclass(frozen=True)
class Lab:
    """A server, and its host key as `ssh-keygen` showed it before the folder was entered."""

    server: SshServer
    fingerprint: str


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield Lab(running, running.fingerprint)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostileFolder:
    """This process is in a folder that would be run, with a module and a program that end."""
    hostile = hostile_folder(tmp_path / "stranger")
    mark = str(hostile.marks / "tunnel")
    (hostile.path / "mytunnel.py").write_text(f"open({mark!r}, 'w').close()\n")
    for file in ("my-tunnel", "bin/my-tunnel"):
        (hostile.path / file).write_text(f"#!/bin/sh\n: >'{mark}'\n")
        (hostile.path / file).chmod(0o755)
    monkeypatch.chdir(hostile.path)
    monkeypatch.setenv("PATH", hostile.search_path)
    return hostile


def config_with(folder: Path, lab: Lab, command: str) -> Path:
    config = folder / "config"
    config.write_text(
        f"Host lab\n HostName 127.0.0.1\n Port {lab.server.port}\n User {lab.server.user}\n"
        f" HostKeyAlias lab\n IdentityFile {lab.server.key}\n ProxyCommand {command}\n"
    )
    return config


def connected(lab: Lab, config: Path, **change: str) -> Connection:
    entry = SshEntry("desk", "local", "lab")
    return connect(
        replace(entry, **change),  # type: ignore[arg-type]
        known_hosts=lab.server.known_hosts,
        fingerprint=lab.fingerprint,
        config_file=config,
    )


def relayed(folder: Path) -> tuple[str, Path]:
    """The words that run a relay, and where it notes its process, its folder and its PATH."""
    relay, note = folder / "relay of mine.py", folder / "note"
    relay.write_text(_RELAY)
    return f"'{sys.executable}' -I '{relay}' %h %p '{note}'", note


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("form", ["{words}", "{words} 2>/dev/null | cat", 'sh -c "{words}; true"'])
def test_a_proxy_command_carries_a_connection_from_a_neutral_folder(
    form: str, lab: Lab, tmp_path: Path, inside: HostileFolder
) -> None:
    words, note = relayed(tmp_path)
    config = config_with(tmp_path, lab, form.format(words=words))

    with connected(lab, config) as through:
        done = through.run(("head", "-c", "900000", "/dev/zero"), most_output=1 << 20)
        process, folder, path = note.read_text().split("\n")

    assert len(done.output) == 900000
    assert folder == "/"
    assert all(Path(entry).is_absolute() for entry in path.split(":"))
    eventually(lambda: is_gone(int(process)))
    assert inside.left == []


def test_a_proxy_command_ends_with_a_refused_login(lab: Lab, tmp_path: Path) -> None:
    words, note = relayed(tmp_path)

    with pytest.raises(DeviceError, match="does not let nobody-by-that-name in"):
        connected(lab, config_with(tmp_path, lab, words), user="nobody-by-that-name")

    eventually(lambda: is_gone(int(note.read_text().split("\n")[0])))


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m mytunnel %h %p",
        "my-tunnel %h %p",
        "./my-tunnel %h %p",
        "bin/my-tunnel",
        "sh -c 'python3 -m mytunnel; my-tunnel'",
    ],
)
def test_a_proxy_command_runs_nothing_of_the_folder(
    command: str, lab: Lab, tmp_path: Path, inside: HostileFolder
) -> None:
    with pytest.raises(DeviceError, match="the ProxyCommand for") as caught:
        connected(lab, config_with(tmp_path, lab, command))

    assert caught.value.hint
    assert inside.left == []


def test_what_a_proxy_command_complains_of_is_told(lab: Lab, tmp_path: Path) -> None:
    command = "sh -c 'echo one >&2; echo the gate is shut >&2; exit 3'"

    with pytest.raises(DeviceError, match="the gate is shut"):
        connected(lab, config_with(tmp_path, lab, command))


@pytest.mark.parametrize(
    ("criteria", "host"),
    [
        ('host pi exec "test %h = pi"', "10.0.0.7"),
        ('exec "test $PWD = / && true" originalhost pi', "10.0.0.7"),
        ('exec "false"', "pi"),
        ('!exec "false"', "10.0.0.7"),
        ('host other exec "true"', "pi"),
        ('exec "python3 -m mytunnel"', "pi"),
        ('exec "my-tunnel"', "pi"),
        ('exec "./my-tunnel"', "pi"),
    ],
)
def test_match_exec_decides_and_runs_nothing_of_the_folder(
    criteria: str, host: str, tmp_path: Path, inside: HostileFolder
) -> None:
    config = tmp_path / "config"
    config.write_text(f"Match {criteria}\n HostName 10.0.0.7\nHost else\n HostName 10.0.0.8\n")

    (hop,) = route_to(SshEntry("kitchen", "rpi4", "pi"), config)

    assert hop.host == host
    assert inside.left == []
