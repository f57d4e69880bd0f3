"""What takes long to compile, for tests whose cache is their own: built once, in the user's cache.

Each entry is named after a hash of all that decides its bytes, so that sharing it changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.cross.sources.recipe import built_in_recipe
from support.session import link, shared_cache


def share_libraries(cache: Path) -> None:
    """Let a cache for tests have the third-party libraries of the user's own."""
    link(shared_cache() / "libraries", cache / "libraries")


def share_agents(cache: Path) -> None:
    """Let a cache for tests have the agents of the user's own, and the runtimes that they need."""
    for name in ("agents", "runtimes"):
        link(shared_cache() / name, cache / name)


def ncnn_layers() -> tuple[str, ...]:
    """The layers that edgekit's ncnn is built with."""
    cmake = built_in_recipe("ncnn").cmake
    assert cmake is not None
    groups = [group for group in cmake.switches if group.prefix == "WITH_LAYER_"]
    return tuple(name for group in groups for name in group.on)
