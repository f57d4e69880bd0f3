"""Builds into the cache what is needed soon, several builds at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import EdgekitError
from edgekit.base.events import SILENT, Events
from edgekit.base.files import scratch_directory
from edgekit.base.paths import cache_dir
from edgekit.building.build import build
from edgekit.building.compilation import Compiling
from edgekit.building.request import BuildRequest


@dataclass(frozen=True)
class Ahead:
    """What compiles ahead, and how many builds at the same time."""

    compiling: Compiling
    width: int


@contextmanager
def built_ahead(
    ahead: Ahead | None, requests: Iterable[Callable[[], BuildRequest]], events: Events
) -> Iterator[None]:
    """Build during the block, in order; who needs a build sooner waits for it, or makes it."""
    if ahead is None:
        yield
        return
    compiling = ahead.compiling

    def work(request: Callable[[], BuildRequest], folder: Path) -> None:
        try:
            build(request(), folder, compiling=compiling, events=SILENT)
        except EdgekitError as error:  # told where the build is needed
            events.note(f"not built ahead: {error.message}")

    with scratch_directory(cache_dir()) as scratch, ThreadPoolExecutor(ahead.width) as builders:
        for number, request in enumerate(requests):
            builders.submit(work, request, scratch / str(number))
        try:
            yield
        finally:
            builders.shutdown(cancel_futures=True)
