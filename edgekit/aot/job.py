"""A job that compiles a model to C, and its result: values that pass between processes."""

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
"""The optimisation level for a bundle's C, in its report and in its firmware."""


UNLIMITED = Memory(1 << 63, 1 << 63)


@dataclass(frozen=True)
class TreeJob:
    name: str
    """The prefix of all names in C, an identifier."""
    origin: Origin
    cpu: Cpu
    memory: Memory = UNLIMITED
    """The budget of the board."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """The ways that measured best, by the key of the step."""
    shapes_chosen: bool = False
    """Whether the caller chose shapes of inputs, and may choose smaller ones."""
    with_ways: bool = False
    """Whether to report the other ways of making each step's C."""


@dataclass(frozen=True)
class WrittenTree:
    """A C tree without its reference vectors, in a folder."""

    folder: Path
    origin: Origin
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sources: tuple[str, ...]
    """The sources to compile."""
    includes: tuple[str, ...]
    """The include folders."""
    report: BareMetal
    """The report, without the figures that only the board's compiler knows: flash and stack."""
    ways: tuple[StepWays, ...] = ()
    """The other ways of each step, if the job requested them."""
