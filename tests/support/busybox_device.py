"""A device with BusyBox, and Dropbear as its SSH server: no bash, no GNU tools, no SFTP."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.devices.linux.hostkeys import KnownHosts
from support.needs import require
from support.ports import free_port
from support.ssh_server import SshServer, wait_for

_START = """\
mount --make-rprivate /
for shared in usr/lib usr/lib64; do
  [ ! -d /$shared ] || mount --bind /$shared "$1/$shared" || exit 99
done
mount -t proc none "$1/proc" || exit 99
for shared in dev sys; do mount --rbind /$shared "$1/$shared" || exit 99; done
exec chroot "$1" /bin/dropbear -F -E -s -p "127.0.0.1:$2" -r /host-key -P /pid
"""
"""What is mounted is seen by the device alone."""


@contextmanager
def busybox_device(folder: Path) -> Iterator[SshServer]:
    """Start the device in a folder of its own. Its libraries are this host's."""
    require("dropbear", "busybox", "mounts", "root")
    root = folder / "root"
    for made in ("bin", "usr/lib", "usr/lib64", "proc", "dev", "sys", "tmp", "etc", "root/.ssh"):
        (root / made).mkdir(parents=True)
    for link in ("lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    _install_programs(root / "bin")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/shells").write_text("/bin/sh\n")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / "user")],
        check=True,
    )
    shutil.copyfile(folder / "user.pub", root / "root/.ssh/authorized_keys")
    for private in (root / "root", root / "root/.ssh"):
        private.chmod(0o700)
    _write_host_key(root / "host-key", folder / "host.pub")
    port = free_port()
    command = ["unshare", "--mount", "sh", "-c", _START, "sh", str(root), str(port)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    known = KnownHosts(folder / "known", folder / "none")
    server = SshServer(folder, root / "root", port, process, known)
    try:
        wait_for(process, port, folder / "log")
        yield server
    finally:
        server.drop_connections()
        process.kill()
        process.wait()


def _install_programs(folder: Path) -> None:
    busybox = shutil.which("busybox")
    dropbear = shutil.which("dropbear", path=f"{os.environ['PATH']}:/usr/sbin")
    assert busybox is not None and dropbear is not None
    shutil.copy(busybox, folder / "busybox")
    shutil.copy(dropbear, folder / "dropbear")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for applet in set(listed.split()) - {"busybox"}:
        (folder / applet).symlink_to("busybox")


def _write_host_key(file: Path, public: Path) -> None:
    command = ["dropbearkey", "-t", "ed25519", "-f", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    public.write_text(next(line for line in said.splitlines() if line.startswith("ssh-")) + "\n")
