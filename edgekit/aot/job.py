"""What becomes C, and what came of it: values that pass between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.aot.tree import Origin
from edgekit.aot.ways import StepWays, Way
from edgekit.base.tensors import TensorSpec
from edgekit.bundle.manifest_bare_metal import BareMetal
from edgekit.profiles.board import Memory
from edgekit.profiles.cpu import Cpu

OPTIMISATION = "-O3"
"""How a bundle's C is compiled, for what its report says of it and in its firmware."""


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
    ways: Mapping[str, Way] = field(default_factory=dict)
    """What was measured to be best, by the key of the step."""
    with_ways: bool = False
    """Whether to say how else each step's C could be made."""


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
    ways: tuple[StepWays, ...] = ()
    """If the job was for those."""
