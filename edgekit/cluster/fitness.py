"""Which workers may do a client's tasks: those with the same versions and toolchains.

Every worker, those that join later too, compares itself with what the client needs. One that fits
offers the client's resource, which all its tasks ask for; so no other worker gets one.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import distributed

from edgekit.base.errors import EdgekitError
from edgekit.base.files import sha256_bytes
from edgekit.building.key import installed_version, package_digest
from edgekit.cross.toolchain import find_compiler
from edgekit.profiles.toolchain import Toolchain
from edgekit.version import __version__

TOPIC = "edgekit"
"""The topic under which workers tell why they do not fit."""
_LOOK_SECONDS = 30.0


@dataclass(frozen=True)
class Needs:
    """What a worker must have in common with the client."""

    edgekit: str
    digest: str
    """The hash of edgekit's own files."""
    python: str
    packages: tuple[tuple[str, str], ...]
    toolchains: tuple[tuple[Toolchain, str], ...]
    """Toolchains, and what their compilers say of themselves."""

    @property
    def resource(self) -> str:
        """The name of the resource that fitting workers offer."""
        return f"edgekit-{sha256_bytes(repr(self).encode())[:16]}"


def needs_of(toolchains: Iterable[Toolchain], packages: Iterable[str]) -> Needs:
    """Return what this host has, for workers to compare with."""
    return Needs(
        __version__,
        package_digest(),
        _python(),
        tuple((name, installed_version(name)) for name in packages),
        tuple((toolchain, find_compiler(toolchain).banner) for toolchain in toolchains),
    )


def differences(needs: Needs) -> tuple[str, ...]:
    """Say what this host has that is not as needed."""
    found = []
    if needs.edgekit != __version__:
        found.append(f"it has edgekit {__version__}, and {needs.edgekit} is needed")
    elif needs.digest != package_digest():
        found.append(f"its edgekit {__version__} is not the same code")
    if needs.python != _python():
        found.append(f"it has Python {_python()}, and {needs.python} is needed")
    for name, version in needs.packages:
        if (own := installed_version(name)) != version:
            found.append(f"it has {name} {own}, and {version} is needed")
    for toolchain, banner in needs.toolchains:
        try:
            own = find_compiler(toolchain).banner
        except EdgekitError as error:
            found.append(error.message)
            continue
        if own != banner:
            found.append(f"its compiler for {toolchain.name} is {own!r}, and {banner!r} is needed")
    return tuple(found)


class Fitness(distributed.WorkerPlugin):  # type: ignore[misc] # Dask has no types
    """Offers the client's resource on each worker that fits."""

    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self.name = needs.resource

    async def setup(self, worker: Any) -> None:
        await self._look(worker)

    def look_again(self, worker: Any) -> None:
        """Compare again after a while, because this worker was found unfit during a task."""
        loop = asyncio.get_running_loop()
        loop.call_later(_LOOK_SECONDS, lambda: loop.create_task(self._look(worker)))

    async def _look(self, worker: Any) -> None:
        if worker.plugins.get(self.name, self) is not self:
            return  # the client has gone, or another one came
        try:
            found = await asyncio.to_thread(differences, self._needs)
        except Exception as error:  # noqa: BLE001 - the worker must not end because of it
            found = (f"it can't be compared: {type(error).__name__}: {error}",)
        lanes = 0 if found else worker.state.nthreads
        await worker.set_resources(**{self.name: lanes})
        if found:
            message = {"needs": self.name, "name": str(worker.name), "problems": list(found)}
            worker.log_event(TOPIC, message)


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])
