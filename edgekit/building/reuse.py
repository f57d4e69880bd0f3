"""Takes a build from the cache, or makes it and stores it there.

A damaged, read-only or full cache costs a warning at most.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.cache import BuildCache
from edgekit.base.errors import BundleError, StorageError
from edgekit.base.events import Events
from edgekit.base.files import clear_directory, free_space, scratch_directory
from edgekit.bundle.folder import copy_bundle, open_bundle


@dataclass(frozen=True)
class Order:
    """A bundle to take from the cache or to make."""

    key: str
    title: str
    folder: Path
    """An empty folder that gets the bundle."""
    make: Callable[[Path], None]
    """The function that fills `folder`; it gets a scratch folder for intermediate files."""


def reuse_or_make(order: Order, *, remake: bool, events: Events) -> bool:
    """Fill the folder; True if the cache had the build. With `remake`, make and store it anew."""
    cache = BuildCache()
    with ExitStack() as held:
        refusal = _lock(cache, order.key, events, held)
        if not remake and _take(cache, order, events):
            return True
        with _scratch(cache, order.folder, usable=refusal is None) as scratch:
            order.make(scratch)
        if refusal is None:
            refusal = _store(cache, order)
        if refusal is not None:
            events.warn(f"the build is not cached: {refusal.message}")
    return False


def make(order: Order) -> None:
    """Fill the folder without the cache."""
    with scratch_directory(order.folder) as scratch:
        order.make(scratch)


def _lock(cache: BuildCache, key: str, events: Events, held: ExitStack) -> StorageError | None:
    """Put the key's lock into `held`. Return the error if the cache can't be written to."""
    with ExitStack() as waiting:

        def announce() -> None:
            waiting.enter_context(events.stage("wait for another build of the same model"))

        try:
            held.enter_context(cache.locked(key, announce))
        except StorageError as error:
            return error
    return None


def _take(cache: BuildCache, order: Order, events: Events) -> bool:
    """Copy a cached bundle into the folder; False if none is cached whole."""
    found = cache.find(order.key)
    if found is None:
        return False
    try:
        copy_bundle(open_bundle(found), order.folder)
    except BundleError as error:
        events.warn(f"the cached build is not used and is made again: {error.message}")
        clear_directory(order.folder)
        with suppress(StorageError):  # a cache that can't be written to keeps its damage
            cache.forget(order.key)
        return False
    return True


def _store(cache: BuildCache, order: Order) -> StorageError | None:
    try:
        with cache.storing(order.key, "build", order.title) as folder:
            copy_bundle(open_bundle(order.folder), folder)
    except StorageError as error:
        return error
    return None


def _scratch(cache: BuildCache, folder: Path, *, usable: bool) -> AbstractContextManager[Path]:
    """Return a scratch folder on the file system with more free space."""
    if usable and free_space(cache.root) >= free_space(folder):
        return cache.scratch()
    return scratch_directory(folder)
