"""What becomes C, and what came of it: values that pass between processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.aot.tree import Origin
from edgekit.board import Memory
from edgekit.cpu import Cpu
from edgekit.manifest import BareMetal
from edgekit.tensors import TensorSpec


@dataclass(frozen=True)
class TreeJob:
    name: str
    """What all names in C begin with."""
    origin: Origin
    cpu: Cpu
    memory: Memory
    offload: tuple[str, ...]
    """Whose kernels may be used beside edgekit's own."""
    cmsis_nn: Path | None = None
    """Where the project says that it is."""


@dataclass(frozen=True)
class WrittenTree:
    """A C tree without its reference vectors, in a folder."""

    folder: Path
    origin: Origin
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sources: tuple[str, ...]
    """What is to be compiled."""
    includes: tuple[str, ...]
    """Where headers are looked for."""
    report: BareMetal
    """Without what only the board's own compiler knows: flash and stack."""
