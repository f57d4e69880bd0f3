"""Stored images: listing them, and removing those that no twin needs."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from edgekit.base.cache import CacheEntry
from edgekit.base.decode import decode_json
from edgekit.base.errors import DeviceError
from edgekit.base.files import storage_errors, sweep_leftovers, try_lock
from edgekit.twin import qemu
from edgekit.twin.image import (
    IMAGE_MANIFEST,
    IMAGE_NAME_LENGTH,
    ImageContents,
    image_lock,
    image_name,
    twins_dir,
)
from edgekit.twin.processes import machines_dir
from edgekit.twin.state import read_state

KIND = "twin image"
_NAME = re.compile(rf"[0-9a-f]{{{IMAGE_NAME_LENGTH}}}")


def stored_images() -> tuple[CacheEntry, ...]:
    """List all images."""
    with storage_errors("read the twins' images", twins_dir()):
        folders = sorted(twins_dir().iterdir()) if twins_dir().is_dir() else []
        return tuple(
            _describe(folder)
            for folder in folders
            if _NAME.fullmatch(folder.name) and folder.is_dir()
        )


def remove_image_unless_in_use(name: str) -> bool:
    """Remove an image unless a twin needs it. Return whether it was removed.

    A twin that starts holds the image's lock until its state names the image. A stopped twin
    needs its image too: its disk is a layer over it.
    """
    folder = twins_dir() / name
    with storage_errors("remove the twins' image", folder):
        held = try_lock(image_lock(folder))
        if held is None:
            return False
        try:
            if _is_needed(name):
                return False
            # Renamed first, so that a kill leaves no half of an image.
            doomed = folder.with_name(f".{name}.000000000000.edgekit-tmp")
            with suppress(FileNotFoundError):
                folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            folder.with_suffix(".log").unlink(missing_ok=True)
            image_lock(folder).unlink()
        finally:
            os.close(held)
    return True


def sweep_images() -> None:
    """Remove leftovers of killed builds."""
    if twins_dir().is_dir():
        with storage_errors("tidy the twins' images", twins_dir()):
            sweep_leftovers(twins_dir())


def _is_needed(name: str) -> bool:
    """Tell whether a twin needs an image, or may: its state can be unreadable."""
    running = {p.folder for p in qemu.running() if p.folder.parent == machines_dir()}
    folders = set(machines_dir().iterdir()) if machines_dir().is_dir() else set()
    for folder in folders | running:
        try:
            state = read_state(folder)
        except DeviceError:
            return True
        if state is None:
            if folder in running:
                return True
        elif image_name(state.image) == name:
            return True
    return False


def _describe(folder: Path) -> CacheEntry:
    release, used = "?", 0.0
    with suppress(OSError, ValueError):  # so that a damaged one is listed
        manifest = folder / IMAGE_MANIFEST
        used = manifest.stat().st_mtime
        release = decode_json(ImageContents, manifest.read_bytes()).release[:40]
    return CacheEntry(
        folder.name, KIND, f"Debian {release}", _size_on_disk(folder), folder.stat().st_mtime, used
    )


def _size_on_disk(folder: Path) -> int:
    """Count blocks, because the disk's file is sparse."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total
