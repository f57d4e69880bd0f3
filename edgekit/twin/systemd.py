"""Twins with systemd as their init, to try services on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, get_args

from edgekit.twin.recipe import GuestFile, Recipe, default_recipe, guest_text

Init = Literal["busybox", "systemd"]
INITS: tuple[Init, ...] = get_args(Init)
DEFAULT_INIT: Init = "busybox"
"""The default, because it starts faster."""

_UNITS = "/etc/systemd/system"
_OFF = (
    *("systemd-logind.service", "getty.target", "getty-static.service"),
    *("systemd-firstboot.service", "systemd-sysusers.service", "systemd-binfmt.service"),
    *("systemd-modules-load.service", "kmod-static-nodes.service", "systemd-repart.service"),
    *("systemd-update-utmp.service", "systemd-update-utmp-runlevel.service"),
    *("systemd-pcrphase.service", "systemd-pcrphase-sysinit.service"),
    *("proc-sys-fs-binfmt_misc.automount", "sys-fs-fuse-connections.mount"),
    *("sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount"),
    *("dev-hugepages.mount", "systemd-journald-audit.socket", "systemd-initctl.socket"),
    *("ldconfig.service", "systemd-journal-catalog-update.service", "systemd-update-done.service"),
)
"""Units that a twin does not need and that are slow on an emulated CPU."""
_GENERATORS_OFF = (
    *("systemd-cryptsetup-generator", "systemd-debug-generator", "systemd-getty-generator"),
    *("systemd-gpt-auto-generator", "systemd-hibernate-resume-generator"),
    *("systemd-integritysetup-generator", "systemd-rc-local-generator"),
    *("systemd-system-update-generator", "systemd-sysv-generator", "systemd-veritysetup-generator"),
)


def recipe_for(init: Init, arch: str) -> Recipe:
    """Return the recipe of the image with an init, for an architecture."""
    return systemd_recipe(arch=arch) if init == "systemd" else default_recipe(arch=arch)


@cache
def systemd_recipe(release: str | None = None, arch: str = "aarch64") -> Recipe:
    """Return the default recipe with systemd, the only program that starts services."""
    base = default_recipe(release, arch)
    files = (
        GuestFile("/etc/fstab", guest_text("systemd/fstab")),
        GuestFile(
            "/etc/group",
            guest_text("group") + guest_text("systemd/group"),
            append_to="/usr/share/base-passwd/group.master",
        ),
        # Present but empty: without the file, systemd sets the system up at each start.
        GuestFile("/etc/machine-id", ""),
        GuestFile("/etc/systemd/system.conf.d/edgekit.conf", guest_text("systemd/system.conf")),
        GuestFile(f"{_UNITS}/network.service", guest_text("systemd/network.service")),
        GuestFile(f"{_UNITS}/sshd.service", guest_text("systemd/sshd.service")),
    )
    replaced = {file.path for file in files}
    busybox_files = {"/etc/inittab", "/usr/lib/edgekit/boot", "/usr/lib/edgekit/shutdown"}
    tool = "/usr/sbin/poweroff"
    return replace(
        base,
        packages=(*base.packages, "systemd"),
        # It names users that only the packages' scripts would make.
        left_out_paths=(*base.left_out_paths, "./usr/lib/tmpfiles.d/systemd-network.conf"),
        links=(
            *(link for link in base.links if link[0] not in ("/usr/sbin/init", "/usr/sbin/reboot")),
            *(("/usr/sbin/init", "/usr/lib/systemd/systemd"), (tool, "/usr/bin/systemctl")),
            *(("/usr/sbin/reboot", "/usr/bin/systemctl"),),
            *((f"{_UNITS}/default.target", "/usr/lib/systemd/system/multi-user.target"),),
            *((f"{_UNITS}/multi-user.target.wants/sshd.service", "../sshd.service"),),
            *_masked(_UNITS, _OFF),
            *_masked("/etc/systemd/system-generators", _GENERATORS_OFF),
        ),
        files=(
            *(file for file in base.files if file.path not in {*replaced, *busybox_files, tool}),
            *files,
        ),
    )


def _masked(folder: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Link names to /dev/null, which masks them for systemd."""
    return [(f"{folder}/{name}", "/dev/null") for name in names]
