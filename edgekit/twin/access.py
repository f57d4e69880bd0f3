"""SSH access to a twin, with keys made for that twin alone and known to both ends beforehand."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.children import run
from edgekit.base.errors import DeviceError
from edgekit.base.files import storage_errors, write_atomically
from edgekit.base.quoting import ssh_config_word
from edgekit.twin import cpio
from edgekit.twin.recipe import USER
from edgekit.twin.tools import find_tool

HOST = "127.0.0.1"
_CLIENT_KEY, _HOST_KEY = "id_ed25519", "ssh_host_ed25519_key"
_KEY_SECONDS = 60


@dataclass(frozen=True)
class Access:
    """Everything an SSH client needs. No key is trusted on first sight."""

    name: str
    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path
    host_key: str
    """The public host key, as in known_hosts: "ssh-ed25519 AAAA…"."""
    ssh_config: Path

    def command(self, *remote: str) -> list[str]:
        """Return OpenSSH's command line, with a command for the twin's shell or none."""
        return ["ssh", "-F", str(self.ssh_config), self.name, *(["--", *remote] if remote else [])]


def make_keys(folder: Path) -> None:
    """Make a twin's client key and host key unless it has them."""
    for name, comment in ((_CLIENT_KEY, "edgekit"), (_HOST_KEY, f"twin {folder.name}")):
        if (folder / name).is_file() and (folder / f"{name}.pub").is_file():
            continue
        (folder / name).unlink(missing_ok=True)
        _make_key(folder / name, comment)


def write_access(folder: Path, name: str, port: int) -> Access:
    """Write known_hosts and an OpenSSH configuration for the twin's current port."""
    access = access_of(folder, name, port)
    with storage_errors("write the twin's SSH configuration", folder):
        write_atomically(access.known_hosts, f"[{HOST}]:{port} {access.host_key}\n")
        write_atomically(access.ssh_config, _configuration(access))
    return access


def access_of(folder: Path, name: str, port: int) -> Access:
    """Return the access to a twin."""
    return Access(
        name=name,
        host=HOST,
        port=port,
        user=USER,
        key=folder / _CLIENT_KEY,
        known_hosts=folder / "known_hosts",
        host_key=_public_key(folder, _HOST_KEY),
        ssh_config=folder / "ssh_config",
    )


def seed(folder: Path, name: str) -> bytes:
    """Pack what differs from other twins, for the first file system: keys and a name."""
    with storage_errors("read the twin's keys", folder):
        host_key = (folder / _HOST_KEY).read_bytes()
    public = _public_key(folder, _HOST_KEY)
    authorized = _public_key(folder, _CLIENT_KEY)
    return cpio.archive(
        [
            cpio.Entry("seed/etc/ssh/ssh_host_ed25519_key", host_key, 0o600),
            cpio.Entry("seed/etc/ssh/ssh_host_ed25519_key.pub", f"{public}\n".encode()),
            cpio.Entry(f"seed/etc/ssh/authorized_keys/{USER}", f"{authorized}\n".encode()),
            cpio.Entry("seed/etc/hostname", f"{name}\n".encode()),
            cpio.Entry("seed/etc/hosts", f"127.0.0.1 localhost {name}\n::1 localhost\n".encode()),
        ]
    )


def _make_key(path: Path, comment: str) -> None:
    tool = find_tool("ssh-keygen")
    assert tool is not None, "require_tools comes first"
    made = run(
        [str(tool), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)],
        limit_s=_KEY_SECONDS,
    )
    if made.status != 0:
        raise DeviceError(
            f"ssh-keygen made no key for the twin: {made.errors.strip()}",
            hint=f"check that {path.parent} is writable and that this user is in /etc/passwd",
        )


def _public_key(folder: Path, name: str) -> str:
    with storage_errors("read the twin's keys", folder):
        words = (folder / f"{name}.pub").read_text(encoding="utf-8", errors="replace").split()
    if len(words) < 2 or words[0] != "ssh-ed25519":
        raise DeviceError(
            f"the key {folder / name}.pub is damaged",
            hint=f"edgekit twin down {folder.name} --delete removes the twin; then start it again",
        )
    return " ".join(words[:2])


def _configuration(access: Access) -> str:
    options = {
        "HostName": access.host,
        "Port": access.port,
        "User": access.user,
        "IdentityFile": ssh_config_word(access.key),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "UserKnownHostsFile": ssh_config_word(access.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ConnectTimeout": 20,
        "ServerAliveInterval": 5,
        "ServerAliveCountMax": 6,
        "LogLevel": "ERROR",
    }
    lines = [f"  {key} {value}" for key, value in options.items()]
    return "\n".join([f"Host {access.name}", *lines, ""])


def choose_port() -> int:
    """Return a port that is free now. Another program may take it before its use."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
    except OSError as error:
        raise DeviceError(
            f"no port on {HOST} is free: {error.strerror}",
            hint="close some network programs and try again",
        ) from error
    assert isinstance(port, int)
    return port


def is_free(port: int) -> bool:
    """Tell whether a port is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As QEMU does: a closing connection of the twin's last run does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
