"""The manifest's entries for runners: libraries that call a vendor's library.

A runner is compiled on the host or on the device, depending on where the vendor's headers are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Built = Literal["host", "device"]
FOLDER = "runner"
"""The folder of the sources in a bundle."""

_BACKEND = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class RunnerEntry:
    backend: str
    built: Built
    """The machine that compiles it. The source is in the bundle in any case."""
    source: str
    library: str
    """The name of the library. It is not in the bundle if the device compiles it."""
    version: str
    """The version of the headers, if it was compiled with the model; else empty."""


def runner_source(backend: str) -> str:
    return f"{FOLDER}/{_stem(backend)}.cc"


def runner_library(backend: str) -> str:
    return f"lib{_stem(backend)}.so"


def runner_backend(source: str) -> str:
    """Return the backend's name for the name of its source: the inverse of `runner_source`."""
    return PurePosixPath(source).stem.removeprefix("edgekit_").replace("_", "-")


def _stem(backend: str) -> str:
    return "edgekit_" + backend.replace("-", "_")


def runners_problem(runners: tuple[RunnerEntry, ...], roles: Mapping[str, str]) -> str | None:
    """Say what is wrong with a manifest's runners and their files; None if nothing is.

    A runner's names must follow from the backend's: commands on a device use them.
    """
    for runner in runners:
        names = (runner_source(runner.backend), runner_library(runner.backend))
        if not _BACKEND.fullmatch(runner.backend) or (runner.source, runner.library) != names:
            return "has a part of no backend's"
    sources = {path for path, role in roles.items() if role == "runner-source"}
    if sources != {runner.source for runner in runners} or len(sources) != len(runners):
        return "must list the source of each of its runners, once"
    for runner in runners:
        if (roles.get(runner.library) == "shared-library") != (runner.built == "host"):
            return f"must list {runner.library} just where it was compiled with the model"
    return None
