"""NVIDIA's compiler as a library and its headers, from packages. No GPU and no driver is needed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.base.errors import MissingToolError

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
"""Packages whose versions decide the kernels' bytes: part of each build's key (building/key.py)."""


@dataclass(frozen=True)
class Toolkit:
    root: Path
    """The folder that holds `include` and `lib`."""

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def compiler(self) -> tuple[Path, ...]:
        """The libraries to load before the compiler, which does not search its own folder."""
        folder = self.root / "lib"
        return (*sorted(folder.glob("libnvrtc-builtins.so.13.*")), folder / "libnvrtc.so.13")


def find_toolkit(folders: Sequence[Path] | None = None) -> Toolkit:
    """Find NVIDIA's packages; raise MissingToolError with what to install."""
    for folder in _folders_of("nvidia") if folders is None else folders:
        toolkit = Toolkit(folder / "cu13")
        wanted = (
            toolkit.include / "cuda_fp16.h",
            toolkit.include / "cccl" / "cuda" / "std" / "cstdint",
            toolkit.root / "lib" / "libnvrtc.so.13",
        )
        if all(path.exists() for path in wanted):
            return toolkit
    raise MissingToolError(
        f"compiling for CUDA needs the packages {', '.join(PACKAGES)}, of CUDA 13",
        hint="pip install 'edgekit[cuda]'",
    )


def _folders_of(package: str) -> list[Path]:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    return [Path(folder) for folder in (found.submodule_search_locations or ())] if found else []
