"""The steps of a program whose buffers have places, and its constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.aot.arena import ArenaPlan
from edgekit.aot.program import Program
from edgekit.compiler.loops import LoopRule


@dataclass(frozen=True)
class PlannedSteps:
    """Steps whose buffers have places."""

    program: Program
    arena: ArenaPlan
    scratch_at: tuple[tuple[int, ...], ...]
    """The offset of each of a step's scratch buffers in the arena."""
    control: Mapping[int, PlannedLoop | PlannedBranch]
    """The steps that run lists of steps, by their place."""
    shared: int
    """Bytes of the arena that a GPU has, from its start."""
    bytes: int
    """The bytes of the arena and of what lies behind it."""


@dataclass(frozen=True)
class PlannedLoop:
    """A body, and places for what one iteration hands to the next, after the body's own arena."""

    rule: LoopRule
    steps: PlannedSteps
    states: tuple[int, ...]
    """The offset of a copy of each state: an iteration reads one copy and writes the other, which
    is the step's output."""
    slices: tuple[int | None, ...]
    """The offset of each slice that is copied, because kernels take aligned addresses alone."""
    pieces: tuple[int | None, ...]
    """The same for each piece of a stacked tensor."""
    bytes: int
    """The bytes of all this and of the body's arena."""


@dataclass(frozen=True)
class PlannedBranch:
    """Two bodies of which one runs, in the same memory."""

    bodies: tuple[PlannedSteps, ...]
    bytes: int


@dataclass
class Weights:
    """Constants one after another, each once. One that another begins with lies in it: tables are
    cut to the size of a graph."""

    alignment: int
    content: bytearray = field(default_factory=bytearray)
    offsets: dict[bytes, int] = field(default_factory=dict)
    beginnings: dict[bytes, int] = field(default_factory=dict)
    """The first constant that begins with these bytes."""

    def place(self, array: Any) -> int:
        data = np.ascontiguousarray(array).tobytes()
        if data not in self.offsets:
            beginning = data[: self.alignment]
            longer = self.beginnings.get(beginning)
            if longer is not None and self.content[longer : longer + len(data)] == data:
                self.offsets[data] = longer
                return longer
            self.content += bytes(-len(self.content) % self.alignment)
            self.offsets[data] = len(self.content)
            self.beginnings.setdefault(beginning, len(self.content))
            self.content += data or b"\0"  # an empty constant has a place, too
        return self.offsets[data]
