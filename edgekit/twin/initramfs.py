"""The initial file system of a twin's kernel: drivers for disk and network, and an init."""

from __future__ import annotations

import lzma
import re
from collections.abc import Sequence
from pathlib import Path

from edgekit.base.errors import BuildError
from edgekit.twin import cpio
from edgekit.twin.recipe import Recipe

_LARGEST_MODULE = 16 << 20
_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


def make_initramfs(recipe: Recipe, busybox: Path, modules_folder: Path) -> bytes:
    """Pack the initial file system."""
    entries = [
        cpio.Entry("init", recipe.initramfs_init.encode(), 0o755),
        cpio.Entry("bin/busybox", busybox.read_bytes(), 0o755),
    ]
    modules = _with_dependencies(recipe.modules, modules_folder)
    order = "".join(f"{name}.ko\n" for name in modules)
    entries.append(cpio.Entry("modules/order", order.encode()))
    entries += [cpio.Entry(f"modules/{name}.ko", data) for name, data in modules.items()]
    return cpio.archive(entries)


def _with_dependencies(names: Sequence[str], folder: Path) -> dict[str, bytes]:
    """Return modules with their dependencies, in loading order.

    Dependencies are read from each module: the package makes modules.dep only when it is set up.
    """
    files = {_module_name(path): path for path in folder.rglob("*.ko*")}
    built_in = {
        _module_name(Path(line))
        for listed in folder.rglob("modules.builtin")
        for line in listed.read_text(encoding="utf-8").splitlines()
    }
    loaded: dict[str, bytes] = {}

    def load(name: str) -> None:
        if name in loaded or name in built_in:
            return
        if name not in files:
            raise BuildError(
                f"Debian's kernel has no module {name}",
                hint="report it: the twin's recipe does not fit this Debian release",
            )
        data = _module(files[name])
        for needed in _needs(data):
            load(needed)
        loaded[name] = data

    for name in names:
        load(name)
    return loaded


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _module(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.LZMADecompressor(memlimit=1 << 28).decompress(
            path.read_bytes(), max_length=_LARGEST_MODULE
        )
    return path.read_bytes()


def _needs(module: bytes) -> tuple[str, ...]:
    match = _DEPENDS.search(module)
    listed = match[1].decode("ascii", "replace") if match else ""
    return tuple(name.replace("-", "_") for name in listed.split(",") if name)
