"""What a backend is: rules that take operators, and code that runs the region they make.

A backend says, rule by rule, which operators of a model its library takes, and as which of its
layers; or that it doesn't, because. Layers that touch become a region (partition.py), and the
backend writes one C++ class for each. docs/write-a-backend.md walks through a complete one.

Nothing here needs TVM: patterns are written in functions that only a compilation calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

# Exported: a backend's rules import everything that they are made of from this module.
from edgekit.backends.refusal import Refused as Refused

if TYPE_CHECKING:
    from edgekit.backends.match import Match
    from edgekit.base.arrays import Array
    from edgekit.base.events import Events
    from edgekit.cross.sources import BuiltLibrary
    from edgekit.profiles.board import Board
    from edgekit.profiles.toolchain import Toolchain

Setting = int | float | str | tuple[int, ...] | tuple[float, ...]
OptionValue = bool | int | float | str


@dataclass(frozen=True)
class Tensor:
    """A value that a model computes or is given."""

    name: str
    """Unique in its model."""
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        from edgekit.base.arrays import numpy_dtype

        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Layer:
    """One layer of a library's, as a rule asks for it.

    `kind`, `settings` and `weights` are in the library's words: its own codegen reads them, and
    `edgekit partition --export-json` writes them down.
    """

    kind: str
    inputs: tuple[str, ...]
    """The pattern's parts that are computed at run time, in the library's order."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """Operators that a library runs as one layer."""

    name: str
    pattern: Any
    """In Relax's pattern language (tvm.relax.dpl)."""
    parts: Mapping[str, Any]
    """The parts of the pattern that `take` asks for, by name."""
    take: Callable[[Match], Layer]
    """The layer for a match; raises Refused with the reason where there is none."""
    within_quantised: bool = False
    """Whether it takes floats between a dequantisation and a quantisation, though its library may
    round them otherwise than the model."""


@dataclass(frozen=True)
class Step:
    """A layer at its place in a model."""

    rule: str
    layer: Layer
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    """More than one for operators such as split."""
    operators: tuple[str, ...]
    """What it replaces, in TVM's words, without `relax.`."""
    nodes: tuple[str, ...]
    """The same in the names of the model file, where they are known."""
    macs: int


@dataclass(frozen=True)
class Region:
    """Steps that a backend runs in one call, in an order in which they can run."""

    symbol: str
    """Unique in every process: made from the digest of what the region computes."""
    backend: str
    steps: tuple[Step, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(operator for step in self.steps for operator in step.operators)

    @property
    def macs(self) -> int:
        return sum(step.macs for step in self.steps)

    @property
    def boundary_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.inputs, *self.outputs))


@dataclass(frozen=True)
class Decision:
    """Who runs one operator, and why."""

    operator: str
    node: str
    """Its name in the model file; empty where it is not known."""
    shape: tuple[int, ...]
    """Of its result; empty for a tuple."""
    macs: int
    backend: str | None
    """None is TVM."""
    region: str | None
    reason: str


@dataclass(frozen=True)
class GeneratedRegion:
    """The C++ that runs a region, and the bytes it reads.

    `source` defines a class that region.h describes; `blobs` are embedded in the library as they
    are, aligned to 64 bytes, and never copied through a C array.
    """

    symbol: str
    backend: str
    source: str
    blobs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """A setting of a backend's that a board profile or a project may change."""

    default: OptionValue
    help: str
    choices: tuple[OptionValue, ...] = ()


Options = Mapping[str, OptionValue]


class Backend(Protocol):
    """What edgekit asks of a backend. A module, or an object, with these names."""

    @property
    def name(self) -> str:
        """How `--offload` calls it."""
        ...

    @property
    def title(self) -> str: ...

    @property
    def version(self) -> str:
        """Of the library, as it is pinned."""
        ...

    @property
    def architectures(self) -> tuple[str, ...]:
        """Of the boards it runs on: aarch64, x86_64."""
        ...

    @property
    def options(self) -> Mapping[str, Option]: ...

    @property
    def before_folding(self) -> bool:
        """Whether its patterns look for operators that edgekit folds away: batch norm. A backend
        of this kind comes before all that are not."""
        ...

    @property
    def include(self) -> Path | None:
        """A folder of headers of the backend's own that generated code includes."""
        ...

    def rules(self, options: Options) -> Sequence[Rule]:
        """Tried in this order on each operator: the longest first."""
        ...

    def generate(self, region: Region, options: Options) -> GeneratedRegion: ...

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        """What the library will be, without making it: part of a build's key."""
        ...

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary | None:
        """The library for a board, made or found; None where generated code needs none."""
        ...


@dataclass(frozen=True)
class Runner:
    """Source of a backend's own that becomes a shared library beside the model's, which code of
    the model's regions loads by itself: `libedgekit_NAME.so`."""

    source: str
    """One file of C++, complete but for the vendor's headers."""
    include: tuple[Path, ...]
    """The folders of those headers; empty where they are not here, and the device compiles it."""
    version: str
    """Of those headers; empty where they are not here."""


@runtime_checkable
class HasRunner(Protocol):
    """What a backend has besides, whose vendor's headers may be on the device alone."""

    def runner(self, board: Board, toolchain: Toolchain) -> Runner: ...
