"""A twin's image: built once from Debian packages, shared by all twins, named by its recipe."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.events import SILENT, Events
from edgekit.base.files import (
    exclusive_lock,
    replace_directory,
    storage_errors,
    write_atomically,
)
from edgekit.base.json_reader import read_json
from edgekit.base.json_text import json_text
from edgekit.base.paths import cache_dir
from edgekit.twin.debian import fetch
from edgekit.twin.initramfs import make_initramfs
from edgekit.twin.recipe import Recipe
from edgekit.twin.rootfs import configure, make_disk, unpack, unpack_package
from edgekit.twin.tools import TO_BUILD, BuildTools, require_tools

IMAGE_MANIFEST = "image.json"
IMAGE_NAME_LENGTH = 16
_KERNEL, _INITRAMFS, _DISK = "kernel", "initramfs", "disk.raw"


@dataclass(frozen=True)
class Image:
    """Read-only: twins write to disks of their own, laid over this one's."""

    digest: str
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / _KERNEL

    @property
    def initramfs(self) -> Path:
        return self.folder / _INITRAMFS

    @property
    def disk(self) -> Path:
        return self.folder / _DISK


@dataclass(frozen=True)
class ImageContents:
    """What is in an image, for people: image.json."""

    recipe: str
    release: str
    kernel: str
    packages: tuple[str, ...]
    seconds: float
    files: dict[str, int]
    """Their sizes in bytes: an image whose files have others is built again."""


def twins_dir() -> Path:
    return cache_dir() / "twins"


def image_name(digest: str) -> str:
    """Of its folder in `twins_dir`."""
    return digest[:IMAGE_NAME_LENGTH]


def image_lock(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def build_log(recipe: Recipe) -> Path:
    """What the tools said when this image was last built, or not built."""
    return twins_dir() / f"{image_name(recipe.digest())}.log"


def find_image(recipe: Recipe) -> Image | None:
    folder = twins_dir() / image_name(recipe.digest())
    return Image(recipe.digest(), folder) if _is_whole(folder, recipe) else None


def ensure_image(recipe: Recipe, events: Events = SILENT) -> Image:
    """The image, built first if it is not there; of several who ask at once, one builds."""
    with held_image(recipe, events) as image:
        return image


@contextmanager
def held_image(recipe: Recipe, events: Events = SILENT) -> Iterator[Image]:
    """The image, built first if it is not there, and removed by nobody while the block runs:
    time to write down that a twin needs it."""
    image = Image(recipe.digest(), twins_dir() / image_name(recipe.digest()))
    if find_image(recipe) is None:
        require_tools(TO_BUILD, "building a twin's image")
    with storage_errors("make the folder of the twins' images", twins_dir()):
        twins_dir().mkdir(parents=True, exist_ok=True)
    waiting = f"another edgekit works with the twins' image {image.folder.name}; waiting for it"
    with exclusive_lock(image_lock(image.folder), on_wait=lambda: events.note(waiting)):
        if find_image(recipe) is None:
            _build(recipe, image.folder, events)
        with suppress(OSError):  # when it was last used, for those who tidy up
            os.utime(image.folder / IMAGE_MANIFEST)
        yield image


def _build(recipe: Recipe, folder: Path, events: Events) -> None:
    began = time.perf_counter()
    with (
        storage_errors("build the twins' image", folder),
        replace_directory(folder) as unfinished,
        _tools(recipe) as tools,
    ):
        with _work_folder(unfinished) as work:
            fetched = fetch(recipe, work, tools, events)
            root, kernel_root = work / "root", work / "kernel"
            unpack(fetched.packages, recipe, root, tools, events)
            configure(recipe, root)
            kernel_root.mkdir()
            unpack_package(fetched.kernel, kernel_root, tools)
            next(kernel_root.glob("boot/vmlinuz-*")).rename(unfinished / _KERNEL)
            busybox, modules = root / "usr/bin/busybox", kernel_root
            (unfinished / _INITRAMFS).write_bytes(make_initramfs(recipe, busybox, modules))
            make_disk(recipe, root, unfinished / _DISK, work, tools, events)
        contents = ImageContents(
            recipe=recipe.digest(),
            release=recipe.release,
            kernel=fetched.kernel.stem,
            packages=tuple(sorted(path.stem for path in fetched.packages)),
            seconds=round(time.perf_counter() - began, 1),
            files={path.name: path.stat().st_size for path in _parts(unfinished)},
        )
        write_atomically(unfinished / IMAGE_MANIFEST, json_text(contents) + "\n")


@contextmanager
def _work_folder(unfinished: Path) -> Iterator[Path]:
    """Inside the unfinished image, so that whoever sweeps the one sweeps the other."""
    work = unfinished / "work"
    work.mkdir()
    yield work
    shutil.rmtree(work)


@contextmanager
def _tools(recipe: Recipe) -> Iterator[BuildTools]:
    with build_log(recipe).open("w+b") as log:
        yield BuildTools(log)


def _parts(folder: Path) -> tuple[Path, ...]:
    return folder / _KERNEL, folder / _INITRAMFS, folder / _DISK


def _is_whole(folder: Path, recipe: Recipe) -> bool:
    """The folder appears in one step when it is finished; this is for what happened to it later."""
    try:
        contents = read_json((folder / IMAGE_MANIFEST).read_text(encoding="utf-8"))
        sizes = {path.name: path.stat().st_size for path in _parts(folder)}
    except (OSError, ValueError):
        return False
    return (
        isinstance(contents, dict)
        and contents.get("recipe") == recipe.digest()
        and contents.get("files") == sizes
    )
