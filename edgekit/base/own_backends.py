"""The backends that come with edgekit: each is a folder with a backend.toml.

Profiles, project files and the registry read these facts without importing a backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import tomli

from edgekit.base.paths import PACKAGE


@dataclass(frozen=True)
class OwnBackend:
    """The facts in a backend.toml."""

    package: str
    makes: Literal["regions", "kernels"]
    """Whether the library runs regions of a model in machine code, or steps of a model in C."""
    takes: Literal["operators", "leftovers"] = "operators"
    """Whether it takes operators that it has rules for, or parts of ONNX models that can't be
    compiled."""
    tensors: Literal["cpu", "gpu"] = "cpu"
    """The memory of the tensors that its regions take."""
    symmetric_int8: str = ""
    """How it computes in int8, if it does so only where all zero points are zero; else empty."""
    project_table: str = ""
    """The table of edgekit.toml whose `path` names the library's source; empty if none does."""


@lru_cache(maxsize=1)
def own_backends() -> Mapping[str, OwnBackend]:
    """Return edgekit's own backends by name."""
    found = {}
    for file in sorted((PACKAGE / "backends").glob("*/backend.toml")):
        folder = file.parent.name
        facts = tomli.loads(file.read_text(encoding="utf-8"))
        found[folder.replace("_", "-")] = OwnBackend(f"edgekit.backends.{folder}", **facts)
    return MappingProxyType(found)


def leftovers_backend(names: Iterable[str]) -> str:
    """Return the one of the backends that takes what can't be compiled; empty if none does."""
    own = own_backends()
    return next((name for name in names if name in own and own[name].takes == "leftovers"), "")
