"""Third-party libraries for tests whose cache is their own: built once, in the user's cache."""

from __future__ import annotations

from pathlib import Path

from edgekit.cross.sources.library import libraries_cache


def share_libraries(cache: Path) -> None:
    """Let a cache for tests have the libraries of the user's own, which take minutes to build.

    Call it before EDGEKIT_CACHE_DIR is set to `cache`.
    """
    shared = libraries_cache().root
    shared.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "libraries").symlink_to(shared)
