"""The first file system: modules in an order in which they load, archives that cpio can read."""

from __future__ import annotations

import lzma
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.needs import needs

from edgekit.base.errors import BuildError
from edgekit.twin import cpio
from edgekit.twin.initramfs import make_initramfs
from edgekit.twin.recipe import default_recipe

RECIPE = replace(default_recipe("bookworm"), modules=("virtio_pci", "virtio_blk", "virtio_net"))


def _module(folder: Path, name: str, needs: str, *, packed: bool = False) -> None:
    data = b"\x7fELF\0license=GPL\0depends=" + needs.encode() + b"\0name=x\0"
    path = folder / "lib" / f"{name}.ko{'.xz' if packed else ''}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(data) if packed else data)


def _kernel(folder: Path, *, packed: bool = False) -> None:
    _module(folder, "virtio_pci", "virtio_ring,virtio,virtio_pci_modern_dev", packed=packed)
    _module(folder, "virtio_ring", "", packed=packed)
    _module(folder, "virtio", "virtio_ring", packed=packed)
    _module(folder, "virtio_pci_modern_dev", "", packed=packed)
    _module(folder, "virtio_blk", "virtio,virtio_ring", packed=packed)
    _module(folder, "virtio_net", "virtio,net-failover", packed=packed)
    _module(folder, "net_failover", "", packed=packed)


def _order(archive: bytes) -> list[str]:
    start = archive.index(b"modules/order\0") + len(b"modules/order\0")
    return archive[start:].lstrip(b"\0").split(b"070701")[0].rstrip(b"\0").decode().split()


@pytest.mark.parametrize("packed", [False, True])
def test_each_module_comes_after_those_it_needs(tmp_path: Path, packed: bool) -> None:
    _kernel(tmp_path, packed=packed)
    (tmp_path / "busybox").write_bytes(b"busybox")
    archive = make_initramfs(RECIPE, tmp_path / "busybox", tmp_path)
    order = [name.removesuffix(".ko") for name in _order(archive)]
    assert sorted(order) == sorted(
        [
            *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci"),
            *("virtio_blk", "net_failover", "virtio_net"),
        ]
    )
    assert order.index("virtio_ring") < order.index("virtio") < order.index("virtio_pci")
    assert order.index("virtio_pci_modern_dev") < order.index("virtio_pci")
    assert order.index("net_failover") < order.index("virtio_net")
    assert archive.count(b"\x7fELF") == len(order), "modules are stored unpacked"


def test_what_is_built_into_the_kernel_is_not_looked_for(tmp_path: Path) -> None:
    _module(tmp_path, "virtio_blk", "")
    _module(tmp_path, "virtio_net", "net_failover")
    _module(tmp_path, "net_failover", "")
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    (tmp_path / "busybox").write_bytes(b"busybox")
    archive = make_initramfs(RECIPE, tmp_path / "busybox", tmp_path)
    assert _order(archive) == ["virtio_blk.ko", "net_failover.ko", "virtio_net.ko"]


def test_a_kernel_without_a_module_is_named(tmp_path: Path) -> None:
    _module(tmp_path, "virtio_pci", "virtio_ring")
    (tmp_path / "busybox").write_bytes(b"busybox")
    with pytest.raises(BuildError, match="virtio_ring"):
        make_initramfs(RECIPE, tmp_path / "busybox", tmp_path)


@needs("cpio")
def test_cpio_unpacks_what_was_packed(tmp_path: Path) -> None:
    entries = [
        cpio.Entry("etc/ssh/key", b"secret", 0o600),
        cpio.Entry("etc/ssh/key.pub", b"public"),
        cpio.Entry("init", b"#!/bin/sh\n", 0o755),
        cpio.Entry("empty", b""),
    ]
    subprocess.run(
        ["cpio", "--extract", "--quiet"], input=cpio.archive(entries), cwd=tmp_path, check=True
    )
    for entry in entries:
        unpacked = tmp_path / entry.path
        assert unpacked.read_bytes() == entry.data
        assert unpacked.stat().st_mode & 0o777 == entry.mode
