"""The content of a twin's image, as data. Its digest names the image: after a change in this file
or in `guest/`, the next twin gets a new image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgekit.base.files import sha256_bytes
from edgekit.base.json_text import json_text
from edgekit.profiles.architecture import architectures

_GUEST = Path(__file__).resolve().parent / "guest"

USER = "edgekit"
USER_ID = 1000

RELEASES: tuple[tuple[str, tuple[int, int]], ...] = (("bookworm", (2, 36)), ("trixie", (2, 41)))
"""Debian releases and their glibc, the oldest first."""


@dataclass(frozen=True)
class GuestFile:
    """A file that edgekit adds to the image. Root owns it unless an `Owner` says otherwise."""

    path: str
    text: str
    mode: int = 0o644
    append_to: str | None = None
    """A file of the image whose text comes first."""


@dataclass(frozen=True)
class Owner:
    """The owner of a path in the image and of everything below it, if not root."""

    path: str
    user: int
    group: int


@dataclass(frozen=True)
class Recipe:
    """Everything that decides an image."""

    architecture: str
    """Debian's name for it."""
    release: str
    packages: tuple[str, ...]
    """The packages to install; apt adds their dependencies."""
    left_out: tuple[str, ...]
    """Dependencies that a twin never runs: they only set packages up, which edgekit does itself."""
    left_out_paths: tuple[str, ...]
    kernel: str
    """The package that depends on the newest kernel."""
    modules: tuple[str, ...]
    """Drivers needed before the disk is mounted; their dependencies are added."""
    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Symbolic links: path and target."""
    files: tuple[GuestFile, ...]
    owners: tuple[Owner, ...]
    initramfs_init: str
    disk_bytes: int
    format: int = 1
    """The version of the image folder's format."""

    def digest(self) -> str:
        return sha256_bytes(json_text(self).encode())


def release_for(glibc: tuple[int, int], releases: Sequence[str]) -> str:
    """Choose the oldest of some releases whose glibc is not older than the host's.

    Programs that the host's cross compiler links then run on the twin.
    """
    for name, offered in RELEASES:
        if offered >= glibc and name in releases:
            return name
    return releases[-1]


def host_glibc() -> tuple[int, int]:
    """Return the host's glibc version; the oldest release's for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return RELEASES[0][1]
    parts = version.split(".")
    if name != "glibc" or len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return RELEASES[0][1]
    return int(parts[0]), int(parts[1])


@cache
def default_recipe(release: str | None = None, arch: str = "aarch64") -> Recipe:
    """Return the recipe of the image that all twins of Linux boards of an architecture share."""
    architecture = architectures()[arch]
    guest = architecture.guest
    assert guest is not None, "hardware_of refuses the others"
    return Recipe(
        architecture=architecture.debian,
        release=release or release_for(host_glibc(), guest.releases),
        packages=(
            *("base-files", "base-passwd", "bash", "dash", "busybox-static", "coreutils"),
            *("libc6", "libc-bin", "libstdc++6", "libgomp1"),
            *("openssh-server", "openssh-sftp-server", "rsync", "sudo", "ca-certificates"),
            *("procps", "iproute2", "util-linux", "mount", "hostname"),
            *("tar", "gzip", "grep", "sed", "findutils", "mawk"),
        ),
        left_out=(
            *("adduser", "debconf", "dpkg", "init-system-helpers", "lsb-base", "openssl"),
            *("perl-base", "runit-helper", "sensible-utils", "ucf", "usrmerge"),
        ),
        left_out_paths=(
            *("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/lintian"),
            *("./usr/bin/chage", "./usr/bin/expiry"),
        ),
        kernel=guest.kernel,
        modules=("virtio_pci", "virtio_blk", "virtio_net", "crc32c_generic", "ext4"),
        folders=(
            *("/usr/bin", "/usr/sbin", "/usr/lib", "/dev", "/proc", "/sys", "/run", "/tmp"),
            *("/root", "/etc/ssh/authorized_keys", f"/home/{USER}", "/var/log", "/var/tmp"),
        ),
        links=(
            *(("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib")),
            *(("/usr/sbin/init", "/bin/busybox"), ("/etc/mtab", "../proc/self/mounts")),
            *(("/usr/bin/awk", "mawk"), ("/usr/sbin/reboot", "poweroff"), ("/var/run", "/run")),
        ),
        files=(
            GuestFile(
                "/etc/passwd",
                guest_text("passwd"),
                append_to="/usr/share/base-passwd/passwd.master",
            ),
            GuestFile(
                "/etc/group", guest_text("group"), append_to="/usr/share/base-passwd/group.master"
            ),
            GuestFile("/etc/shadow", guest_text("shadow"), 0o640),
            GuestFile("/etc/fstab", guest_text("fstab")),
            GuestFile("/etc/environment", guest_text("environment")),
            GuestFile("/etc/inittab", guest_text("inittab")),
            GuestFile("/etc/ssh/sshd_config", guest_text("sshd_config")),
            GuestFile("/etc/sudoers.d/edgekit", guest_text("sudoers"), 0o440),
            GuestFile("/etc/pam.d/common-auth", guest_text("pam-auth")),
            GuestFile("/etc/pam.d/common-account", guest_text("pam-account")),
            GuestFile("/etc/pam.d/common-password", guest_text("pam-password")),
            GuestFile("/etc/pam.d/common-session", guest_text("pam-session")),
            GuestFile("/etc/pam.d/common-session-noninteractive", guest_text("pam-session")),
            GuestFile("/usr/lib/edgekit/boot", guest_text("boot"), 0o755),
            GuestFile("/usr/lib/edgekit/shutdown", guest_text("shutdown"), 0o755),
            GuestFile("/usr/sbin/poweroff", guest_text("power"), 0o755),
        ),
        owners=(
            Owner(f"/home/{USER}", USER_ID, USER_ID),
            Owner("/etc/shadow", 0, 42),
            Owner("/usr/sbin/unix_chkpwd", 0, 42),
        ),
        initramfs_init=guest_text("initramfs-init"),
        disk_bytes=4 << 30,
    )


def guest_text(name: str) -> str:
    """Read a file of `guest/`."""
    return (_GUEST / name).read_text(encoding="utf-8")
