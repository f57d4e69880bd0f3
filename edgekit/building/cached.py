"""Everything that edgekit caches on this host: builds, libraries and their sources, and images of
twins."""

from __future__ import annotations

from edgekit.base.cache import BuildCache, CacheEntry, Pruned, prune_entries
from edgekit.cross.sources.library import libraries_cache, sweep_libraries
from edgekit.twin.images import KIND, remove_image_unless_in_use, stored_images, sweep_images


def cached_entries() -> tuple[CacheEntry, ...]:
    """List all entries, the most recently used first."""
    entries = (*BuildCache().entries(), *libraries_cache().entries(), *stored_images())
    return tuple(sorted(entries, key=lambda entry: (-entry.used, entry.key)))


def prune_cached(*, older_than: float | None, max_bytes: int | None) -> Pruned:
    """Prune as `prune_entries` does. An image with a twin is in use even if the twin is stopped."""
    builds, libraries = BuildCache(), libraries_cache()

    def remove(entry: CacheEntry) -> bool:
        if entry.kind == KIND:
            return remove_image_unless_in_use(entry.key)
        cache = libraries if entry.kind in ("library", "source") else builds
        return cache.remove_unless_in_use(entry.key)

    pruned = prune_entries(cached_entries(), remove, older_than=older_than, max_bytes=max_bytes)
    builds.sweep()
    sweep_libraries()
    sweep_images()
    return pruned
