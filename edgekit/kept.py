"""Everything that edgekit keeps on this machine to save time: builds and twins' images."""

from __future__ import annotations

from edgekit.cache import BuildCache, CacheEntry, Pruned, prune_entries
from edgekit.twin.images import (
    KIND,
    remove_image_unless_in_use,
    stored_images,
    sweep_images,
)


def kept_entries() -> tuple[CacheEntry, ...]:
    """The most recently used first."""
    entries = (*BuildCache().entries(), *stored_images())
    return tuple(sorted(entries, key=lambda entry: (-entry.used, entry.key)))


def prune_kept(*, older_than: float | None, max_bytes: int | None) -> Pruned:
    """As `prune_entries` does it; an image that a twin lies on is in use, whether the twin runs
    or not."""
    builds = BuildCache()

    def remove(entry: CacheEntry) -> bool:
        if entry.kind == KIND:
            return remove_image_unless_in_use(entry.key)
        return builds.remove_unless_in_use(entry.key)

    pruned = prune_entries(kept_entries(), remove, older_than=older_than, max_bytes=max_bytes)
    builds.sweep()
    sweep_images()
    return pruned
