"""The contents of a C tree: a program, its kernels, and the places of its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.aot.arena import ArenaPlan
from edgekit.aot.kernel import Kernel, Library
from edgekit.aot.program import Program
from edgekit.base.tensors import TensorSpec


@dataclass(frozen=True)
class Origin:
    """The origin of a tree, for its comments and its README."""

    model: str
    """The model's display name."""
    file: str
    edgekit: str
    board: str
    cpu: str
    flags: tuple[str, ...] = ()
    """The options of the board's compiler for its CPU."""


@dataclass(frozen=True)
class TreePlan:
    origin: Origin
    program: Program
    kernels: tuple[Kernel, ...]
    arena: ArenaPlan
    libraries: tuple[Library, ...] = ()
    host: TreePlan | None = None
    """The same program in C that any machine runs, where `kernels` are for one kind of CPU: the
    tree's own test compiles it."""

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def macros(self) -> str:
        """The prefix of the macros."""
        return self.program.name.upper()


@dataclass(frozen=True)
class Port:
    """An input or an output of the interface."""

    spec: TensorSpec
    field: str
    """The field of the struct."""
    buffer: int
    macro: str
    """The prefix of its macros."""


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
