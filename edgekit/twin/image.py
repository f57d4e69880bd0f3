"""The image of twins: built once from Debian packages, shared, named by its recipe."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.decode import decode_json
from edgekit.base.events import SILENT, Events
from edgekit.base.files import exclusive_lock, replace_directory, storage_errors, write_atomically
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
    """A read-only image. Each twin writes to its own disk, a layer over the image's."""

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
    """The content of image.json, for people."""

    recipe: str
    release: str
    kernel: str
    packages: tuple[str, ...]
    seconds: float
    files: dict[str, int]
    """The size of each file. An image with other sizes is built again."""


def twins_dir() -> Path:
    """Return the folder of images and twins."""
    return cache_dir() / "twins"


def image_name(digest: str) -> str:
    """Return the name of an image's folder in `twins_dir`."""
    return digest[:IMAGE_NAME_LENGTH]


def image_lock(folder: Path) -> Path:
    """Return the lock file of an image."""
    return folder.with_suffix(".lock")


def build_log(recipe: Recipe) -> Path:
    """Return the log of the last build of an image."""
    return twins_dir() / f"{image_name(recipe.digest())}.log"


def find_image(recipe: Recipe) -> Image | None:
    """Return a recipe's image if it is complete."""
    folder = twins_dir() / image_name(recipe.digest())
    return Image(recipe.digest(), folder) if _is_whole(folder, recipe) else None


def ensure_image(recipe: Recipe) -> Image:
    """Return a recipe's image, built first if it is missing. Of several callers, one builds."""
    with held_image(recipe) as image:
        return image


@contextmanager
def held_image(recipe: Recipe, events: Events = SILENT) -> Iterator[Image]:
    """Hold an image, built first if it is missing, so that it is not removed during the block.

    A twin uses that time to record that it needs the image.
    """
    image = Image(recipe.digest(), twins_dir() / image_name(recipe.digest()))
    if find_image(recipe) is None:
        require_tools(TO_BUILD, "building a twin's image")
    with storage_errors("make the folder of the twins' images", twins_dir()):
        twins_dir().mkdir(parents=True, exist_ok=True)
    waiting = f"waiting for another edgekit to finish with the twins' image {image.folder.name}"
    with exclusive_lock(image_lock(image.folder), on_wait=lambda: events.note(waiting)):
        if find_image(recipe) is None:
            _build(recipe, image.folder, events)
        with suppress(OSError):  # the last use, for `edgekit cache prune`
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
            next(kernel_root.glob("boot/vmlinu[xz]-*")).rename(unfinished / _KERNEL)
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
    """Make a work folder in the unfinished image, so that both are swept together."""
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
    """Tell whether an image is still complete: its files may have changed after the build."""
    try:
        contents = decode_json(ImageContents, (folder / IMAGE_MANIFEST).read_bytes())
        sizes = {path.name: path.stat().st_size for path in _parts(folder)}
    except (OSError, ValueError):
        return False
    return (contents.recipe, contents.files) == (recipe.digest(), sizes)
