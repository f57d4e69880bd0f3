"""What becomes a C tree: a program, its kernels, and where everything lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.aot.arena import ArenaPlan
from edgekit.aot.kernel import Kernel
from edgekit.aot.program import Program
from edgekit.base.tensors import TensorSpec


@dataclass(frozen=True)
class Origin:
    """Where a tree came from, for its comments and its README."""

    model: str
    """As a person calls it."""
    file: str
    edgekit: str
    board: str
    cpu: str
    flags: tuple[str, ...] = ()
    """What the board's compiler has to be told about its CPU."""


@dataclass(frozen=True)
class Library:
    """A third party's files that kernels need, as they go under lib/NAME."""

    name: str
    version: str
    files: Mapping[str, str]
    """Text by path: sources and headers."""
    includes: tuple[str, ...]
    """Folders inside it that headers are looked for in."""
    license_name: str
    license_text: str


@dataclass(frozen=True)
class TreePlan:
    origin: Origin
    program: Program
    kernels: tuple[Kernel, ...]
    arena: ArenaPlan
    libraries: tuple[Library, ...] = ()
    host: TreePlan | None = None
    """The same program in C that any machine runs, where `kernels` are for one kind of CPU: what
    the tree's own test compiles."""

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def macros(self) -> str:
        """What the macros begin with."""
        return self.program.name.upper()


@dataclass(frozen=True)
class Port:
    """An input or an output, as the interface has it."""

    spec: TensorSpec
    field: str
    """Of the struct."""
    buffer: int
    macro: str
    """What its macros begin with."""


def ports(plan: TreePlan) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    from edgekit.aot.names import Unique, identifier

    def named(specs: Sequence[TensorSpec], buffers: Sequence[int], word: str) -> tuple[Port, ...]:
        unique = Unique()
        return tuple(
            Port(spec, unique.name(identifier(spec.name)), buffer, f"{plan.macros}_{word}_{k}")
            for k, (spec, buffer) in enumerate(zip(specs, buffers, strict=True))
        )

    program = plan.program
    return (
        named(program.inputs, range(len(program.inputs)), "INPUT"),
        named(program.outputs, program.results, "OUTPUT"),
    )
