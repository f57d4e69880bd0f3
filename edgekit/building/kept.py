"""Everything that edgekit keeps on this machine to save time: builds, libraries and their sources,
twins' images."""

from __future__ import annotations

from edgekit.base.cache import BuildCache, CacheEntry, Pruned, prune_entries
from edgekit.cross.sources.library import libraries_cache, sweep_libraries
from edgekit.twin.images import (
    KIND,
    remove_image_unless_in_use,
    stored_images,
    sweep_images,
)


def kept_entries() -> tuple[CacheEntry, ...]:
    """The most recently used first."""
    entries = (*BuildCache().entries(), *libraries_cache().entries(), *stored_images())
    return tuple(sorted(entries, key=lambda entry: (-entry.used, entry.key)))


def prune_kept(*, older_than: float | None, max_bytes: int | None) -> Pruned:
    """As `prune_entries` does it; an image that a twin lies on is in use, whether the twin runs
    or not."""
    builds, libraries = BuildCache(), libraries_cache()

    def remove(entry: CacheEntry) -> bool:
        if entry.kind == KIND:
            return remove_image_unless_in_use(entry.key)
        cache = libraries if entry.kind in ("library", "source") else builds
        return cache.remove_unless_in_use(entry.key)

    pruned = prune_entries(kept_entries(), remove, older_than=older_than, max_bytes=max_bytes)
    builds.sweep()
    sweep_libraries()
    sweep_images()
    return pruned
