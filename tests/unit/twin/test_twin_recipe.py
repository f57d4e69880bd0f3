"""The recipe names the image: the same recipe the same image, another recipe another."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from edgekit.profiles.architecture import architectures
from edgekit.twin.recipe import GuestFile, Owner, Recipe, default_recipe, release_for
from edgekit.twin.systemd import systemd_recipe

RECIPE = default_recipe("bookworm")

CHANGES: dict[str, object] = {
    "architecture": "armhf",
    "release": "trixie",
    "packages": (*RECIPE.packages, "gdbserver"),
    "left_out": RECIPE.left_out[1:],
    "left_out_paths": (),
    "kernel": "linux-image-arm64",
    "modules": (*RECIPE.modules, "virtio_rng"),
    "folders": (*RECIPE.folders, "/opt"),
    "links": RECIPE.links[1:],
    "files": (*RECIPE.files, GuestFile("/etc/motd", "hello\n")),
    "owners": (*RECIPE.owners, Owner("/opt", 1000, 1000)),
    "initramfs_init": RECIPE.initramfs_init + "\n",
    "disk_bytes": RECIPE.disk_bytes * 2,
    "format": RECIPE.format + 1,
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Recipe)])
def test_every_part_of_a_recipe_changes_its_digest(field: str) -> None:
    changed = dataclasses.replace(RECIPE, **{field: CHANGES[field]})
    assert changed.digest() != RECIPE.digest()


def test_a_files_mode_changes_the_digest() -> None:
    first, *others = RECIPE.files
    files = (dataclasses.replace(first, mode=0o600), *others)
    assert dataclasses.replace(RECIPE, files=files).digest() != RECIPE.digest()


def test_a_recipe_has_the_same_digest_in_every_process() -> None:
    script = "from edgekit.twin.recipe import default_recipe as d; print(d('bookworm').digest())"
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == RECIPE.digest()


@pytest.mark.parametrize(
    ("host", "release", "arch"),
    [
        ((2, 31), "bookworm", "aarch64"),
        ((2, 36), "bookworm", "armv7l"),
        ((2, 36), "trixie", "riscv64"),
        ((2, 39), "trixie", "aarch64"),
        ((2, 41), "trixie", "aarch64"),
        ((2, 99), "trixie", "aarch64"),
    ],
)
def test_the_twins_glibc_is_not_older_than_the_hosts_where_debian_has_one(
    host: tuple[int, int], release: str, arch: str
) -> None:
    guest = architectures()[arch].guest
    assert guest is not None
    assert release_for(host, guest.releases) == release


def test_root_cannot_log_in_and_passwords_do_not_count() -> None:
    (config,) = (file.text for file in RECIPE.files if file.path == "/etc/ssh/sshd_config")
    lines = config.splitlines()
    assert "PermitRootLogin no" in lines
    assert "PasswordAuthentication no" in lines
    assert "AllowUsers edgekit" in lines


def test_systemd_is_another_image_with_one_init_and_the_same_way_in() -> None:
    recipe = systemd_recipe("bookworm")
    assert recipe.digest() != RECIPE.digest()
    links = dict(recipe.links)
    assert len(links) == len(recipe.links)
    assert links["/usr/sbin/init"].endswith("/systemd")
    assert links["/usr/sbin/poweroff"].endswith("/systemctl"), "busybox's would not be heard"
    paths = [file.path for file in recipe.files]
    assert len(set(paths)) == len(paths)
    assert not set(paths) & set(links)
    same = {"/etc/ssh/sshd_config", "/etc/shadow", "/etc/sudoers.d/edgekit"}
    assert {file for file in RECIPE.files if file.path in same} <= set(recipe.files)
