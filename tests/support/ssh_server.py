"""A real OpenSSH server on loopback, run by the tests' user: the device of the tests."""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.devices.linux.connection import Connection, connect
from edgekit.devices.linux.hostkeys import KnownHosts
from edgekit.project.devices import SshEntry
from support.needs import require
from support.ports import free_port

_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
SetEnv HOME={home} {environment}
{extra}
"""


@dataclass
class SshServer:
    """Its keys, its port, and the home folder that its sessions have."""

    folder: Path
    home: Path
    port: int
    process: subprocess.Popen[bytes]
    known_hosts: KnownHosts
    directory: str | None = field(default=None)

    @property
    def user(self) -> str:
        return getpass.getuser()

    @property
    def key(self) -> str:
        return str(self.folder / "user")

    @property
    def fingerprint(self) -> str:
        listed = subprocess.run(
            ["ssh-keygen", "-lf", str(self.folder / "host.pub")],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        return listed.split()[1]

    @property
    def root(self) -> Path:
        return Path(self.directory or self.home / ".local/share/edgekit")

    def entry(self, name: str = "desk", board: str = "local") -> SshEntry:
        return SshEntry(
            name, board, "127.0.0.1", self.user, self.port, self.key, directory=self.directory
        )

    def connect(self, name: str = "desk") -> Connection:
        return connect(self.entry(name), known_hosts=self.known_hosts, fingerprint=self.fingerprint)

    def sessions(self) -> list[int]:
        """The processes that serve connections."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                said = (process / "stat").read_text(errors="replace")
            except OSError:
                continue
            if int(said.rpartition(")")[2].split()[1]) == self.process.pid:
                found.append(int(process.name))
        return found

    def drop_connections(self) -> None:
        for session in self.sessions():
            with suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)

    def is_given_back(self) -> bool:
        """Whether nobody holds the device any more: who did takes a moment to notice that the
        connection is gone."""
        if agents_of(self):
            return False
        try:
            lock = os.open(self.root / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True


@contextmanager
def ssh_server(
    folder: Path, extra: str = "", mount: str | None = None, environment: str = ""
) -> Iterator[SshServer]:
    """`mount` is a shell command that mounts what the
    device is to have at "$1", its folder for edgekit; nobody else sees that. `environment` is what
    its sessions have besides, `NAME=VALUE` with spaces between."""
    require("sshd")
    program = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    assert program is not None
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it insists on a place without privileges
    for name in ("host", "user"):
        if not (folder / name).exists():
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)],
                check=True,
            )
    port = free_port()
    config = folder / "sshd_config"
    config.write_text(
        _CONFIG.format(port=port, folder=folder, home=home, extra=extra, environment=environment)
    )
    command = [program, "-D", "-e", "-f", str(config), *_without_penalties(program, config)]
    directory = None
    if mount is not None:
        directory = str(folder / "mounted")
        Path(directory).mkdir()
        command = _inside_mount(mount, directory, command)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    known = KnownHosts(folder / "known", folder / "none")
    server = SshServer(folder, home, port, process, known, directory)
    try:
        wait_for(process, port, folder / "log")
        yield server
    finally:
        server.drop_connections()
        process.kill()
        process.wait()


def _inside_mount(mount: str, directory: str, command: list[str]) -> list[str]:
    require("mounts", "root")
    inside = ["unshare", "-m", "sh", "-c", f'{mount} || exit 99; shift; exec "$@"', "sh"]
    return [*inside, directory, *command]


def _without_penalties(program: str, config: Path) -> list[str]:
    """Since OpenSSH 9.8 whoever fails to log in a few times is kept out for a while: after tests
    that do so on purpose, all the others."""
    option = ["-o", "PerSourcePenalties=no"]
    known = subprocess.run([program, "-t", "-f", str(config), *option], capture_output=True)
    return option if known.returncode == 0 else []


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(1200):
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text())


def agents_of(server: SshServer) -> list[int]:
    """The processes of the agent that lies on this device, and of the models that it runs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = (process / "exe").readlink()
        except OSError:
            continue
        of_device = program.is_relative_to(server.home) or program.is_relative_to(server.root)
        if program.name.startswith("edgekit-agent") and of_device:
            found.append(int(process.name))
    return found
