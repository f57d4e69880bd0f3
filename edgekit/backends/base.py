"""The interface of a backend: rules that match operators, and code that runs the resulting region.

Each rule turns operators of a model into a layer of the backend's library, or refuses with a
reason. Adjacent layers become a region (partition.py), and the backend writes one C++ class for
each region. docs/adding/backend.md walks through a complete backend.

This module does not need TVM: functions that only a compilation calls build the patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

# Exported, because a backend's rules import everything from this module.
from edgekit.backends.refusal import Refused as Refused

if TYPE_CHECKING:
    from edgekit.aot.kernel import Generator
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
    """A value that a model computes or receives."""

    name: str
    """The tensor's name, unique in its model."""
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        from edgekit.base.arrays import numpy_dtype

        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Layer:
    """One layer of a library, as a rule requests it.

    `kind`, `settings` and `weights` use the library's own terms: its codegen reads them, and
    `edgekit partition --export-json` writes them.
    """

    kind: str
    inputs: tuple[str, ...]
    """The parts of the pattern that are computed at run time, in the library's order."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """Operators that a library runs as one layer."""

    name: str
    pattern: Any
    """The pattern, in Relax's pattern language (tvm.relax.dpl)."""
    parts: Mapping[str, Any]
    """The parts of the pattern that `take` uses, by name."""
    take: Callable[[Match], Layer]
    """The function that makes the layer of a match, or raises Refused with the reason."""
    within_quantised: bool = False
    """Whether the rule takes floats between a dequantisation and a quantisation, though its library
    may round them differently from the model."""


@dataclass(frozen=True)
class Step:
    """A layer at its place in a model."""

    rule: str
    layer: Layer
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    """The results: several for operators such as split."""
    operators: tuple[str, ...]
    """The operators that the step replaces, by their TVM names without `relax.`."""
    nodes: tuple[str, ...]
    """The names of those operators in the model file, where known."""
    macs: int


@dataclass(frozen=True)
class Region:
    """Steps that a backend runs in one call, in a valid order."""

    symbol: str
    """The name of the region's function, made from the digest of its computation."""
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
    """Which backend runs one operator, and why."""

    operator: str
    node: str
    """The operator's name in the model file; empty if unknown."""
    shape: tuple[int, ...]
    """The shape of the result; empty for a tuple."""
    macs: int
    backend: str | None
    """The backend's name; None means TVM."""
    region: str | None
    reason: str


@dataclass(frozen=True)
class GeneratedRegion:
    """The C++ that runs a region, and the bytes it reads.

    `source` defines the class that edgekit_region.h describes. `blobs` are embedded in the library
    unchanged, aligned to 64 bytes, without a C array.
    """

    symbol: str
    backend: str
    source: str
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    place: str = ""
    """Where the region computes, in words, if that is not the CPU alone."""


@dataclass(frozen=True)
class Option:
    """A setting of a backend that a board profile or a project may change."""

    default: OptionValue
    help: str
    choices: tuple[OptionValue, ...] = ()


Options = Mapping[str, OptionValue]


class Backend(Protocol):
    """The interface of a backend: a module or an object with these names."""

    @property
    def name(self) -> str:
        """The name that `--offload` takes."""
        ...

    @property
    def title(self) -> str: ...

    @property
    def version(self) -> str:
        """The library's pinned version."""
        ...

    @property
    def architectures(self) -> tuple[str, ...]:
        """The architectures that it supports: aarch64, x86_64."""
        ...

    @property
    def options(self) -> Mapping[str, Option]: ...

    @property
    def before_folding(self) -> bool:
        """Whether its patterns contain operators that edgekit folds away, such as batch norm.
        Such backends run before all others."""
        ...

    @property
    def include(self) -> Path | None:
        """A folder with the backend's own headers, which generated code includes."""
        ...

    def rules(self, options: Options) -> Sequence[Rule]:
        """The rules, in the order in which each operator tries them: longest patterns first."""
        ...

    def generate(self, region: Region, options: Options) -> GeneratedRegion: ...

    def identity(self, board: Board, toolchain: Toolchain) -> str:
        """The identity of the library, found without building it: part of a build's key."""
        ...

    def library(self, board: Board, toolchain: Toolchain, events: Events) -> BuiltLibrary | None:
        """Build or find the library for a board; return None if generated code needs none."""
        ...


@runtime_checkable
class HasCosts(Protocol):
    """The addition to `Backend` for an accelerator whose vendor knows how long its regions take."""

    def microseconds(self, region: Region, options: Options) -> float:
        """Estimate the time of one call, transfers across the region's boundary included."""
        ...


@runtime_checkable
class HasVariants(Protocol):
    """The addition to `Backend` whose library, and so its version, depends on options."""

    def variant(self, options: Options) -> Backend:
        """Return the backend with the library that these options choose."""
        ...


@runtime_checkable
class HasAdvice(Protocol):
    """The addition to `Backend` that knows from others how it runs on some boards."""

    def advice(self, board: Board) -> str:
        """Return a sentence with its source, for or against a way to use it; empty for none."""
        ...


class KernelBackend(Protocol):
    """The interface of a library whose functions may run single steps of a model in C."""

    @property
    def name(self) -> str:
        """The name that `--offload` takes."""
        ...

    def identity(self, options: Options) -> str:
        """The identity of the library, part of a build's key; empty if it is not installed."""
        ...

    def require(self, options: Options) -> None:
        """Raise MissingToolError if the library is not installed."""
        ...

    def generator(self, options: Options) -> Generator:
        """The generator of its kernels; one that declines every step if it is not installed."""
        ...


@dataclass(frozen=True)
class Runner:
    """A backend's own source for the shared library `libedgekit_NAME.so`, next to the model's. The
    code of the regions loads it."""

    source: str
    """One file of C++, complete except for the vendor's headers."""
    include: tuple[Path, ...]
    """The folders of those headers; empty if the host lacks them and the device must compile."""
    version: str
    """The version of those headers; empty if the host lacks them."""


@dataclass(frozen=True)
class DeviceBuild:
    """How a device compiles a runner against its own headers."""

    headers: tuple[str, ...]
    """The headers' names. Three lines `#define …_MAJOR` and so on among them give the version."""
    folders: tuple[str, ...]
    """Folders on the device that may hold them, as patterns of the shell."""
    variable: str
    """The environment variable that names further folders, on the device and on the host."""
    install: str
    """The advice for a device that lacks headers."""
    check: str
    """The advice for headers that do not fit the runner."""


@runtime_checkable
class HasRunner(Protocol):
    """The addition to `Backend` for vendors whose headers may exist only on the device."""

    @property
    def device_build(self) -> DeviceBuild: ...

    def runner(self, board: Board, toolchain: Toolchain) -> Runner: ...
