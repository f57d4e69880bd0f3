"""A model as a straight list of steps on buffers, made from the lowered Relax module."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from edgekit.aot.operators import Operator
from edgekit.base.tensors import TensorSpec


@dataclass(frozen=True)
class Buffer:
    """A tensor that one step writes and others read, or an input."""

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
    """A C identifier, unique in its program: the function to step through in a debugger."""
    operator: Operator
    inputs: tuple[int, ...]
    """The program's buffers that it reads."""
    outputs: tuple[int, ...]
    layers: tuple[str, ...]
    """The model's own names for the layers that it computes."""
    reason: str = ""
    """The reason why a quantised model's step is not computed in integers."""


@dataclass(frozen=True)
class Program:
    name: str
    """The C identifier with which all of its names begin."""
    model_sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: tuple[Buffer, ...]
    """The buffers, inputs first. A reshape makes no buffer: its reader reads its input."""
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    """The buffer of each output."""

    ports_outside: bool = False
    """Whether inputs and outputs have no place in the arena: those of a loop's body."""

    def placed(self) -> Program:
        """Return the program with the bytes that its buffers take in the arena."""
        if not self.ports_outside:
            return self
        ports = {*range(len(self.inputs)), *self.results}
        buffers = (
            replace(buffer, bytes=0) if k in ports else buffer
            for k, buffer in enumerate(self.buffers)
        )
        return replace(self, buffers=tuple(buffers), ports_outside=False)
