"""A model as a straight list of steps on buffers: what is left when Relax has done its part."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.aot.operators import Operator
from edgekit.base.tensors import TensorSpec


@dataclass(frozen=True)
class Buffer:
    """What one step writes and others read, or what comes in."""

    name: str
    """A C identifier, unique in its program."""
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Step:
    name: str
    """A C identifier, unique in its program: what a person steps through."""
    operator: Operator
    inputs: tuple[int, ...]
    """Of the program's buffers."""
    outputs: tuple[int, ...]
    layers: tuple[str, ...]
    """The model's own names for what it computes."""
    reason: str = ""
    """Why it is not computed in integers, where a quantised model's step is not."""


@dataclass(frozen=True)
class Program:
    name: str
    """A C identifier: what all of its names begin with."""
    model_sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: tuple[Buffer, ...]
    """The inputs first. A reshape makes no buffer: its reader reads what the reshape read."""
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    """The buffer of each output."""
