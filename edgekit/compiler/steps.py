"""The steps of compiled code: what runs one after the other, and which layers each computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.base.node_names import nodes_of

StepKind = Literal["kernel", "region", "copy", "indices", "loop", "branch", "gpu"]
"""A step of kind "gpu" is kernels that a GPU runs; the CPU runs all others."""


@dataclass(frozen=True)
class CodeStep:
    name: str
    """The name that a profile gives it: the step's own, or its kernel's in TVM's machine."""
    kind: StepKind
    layers: tuple[str, ...]
    """The model's own names of the layers that it computes."""
    symbol: str = ""
    """The region that it calls; empty for other kinds."""
    bytes: int | None = None
    """The bytes of all tensors and weights that it reads and writes; None if unknown."""
    operations: int | None = None
    """Its additions and multiplications; None if unknown."""
    reads: tuple[int, ...] | None = None
    """The steps whose results it reads, by their places in the list; None if unknown."""
    launches: int = 0
    """Kernels that a GPU starts for it."""


@dataclass(frozen=True)
class CodeBuffer:
    """A place in the arena, from its first step to its last."""

    name: str
    use: Literal["tensor", "scratch"]
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class CodeArena:
    """The planned memory of a program."""

    bytes: int
    bound: int
    """The most bytes in use at one step."""
    buffers: tuple[CodeBuffer, ...]


def steps_for_machine(module: Any) -> tuple[CodeStep, ...]:
    """Return a step for each kernel and region of a scheduled module, with the layers of all calls.

    TVM's virtual machine reports times by function, not by call.
    """
    from tvm import relax

    layers: dict[tuple[str, StepKind], dict[str, None]] = {}
    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            for name, kind, nodes in _calls(function):
                layers.setdefault((name, kind), {}).update(dict.fromkeys(nodes))
    return tuple(
        CodeStep(name, kind, tuple(nodes), name if kind == "region" else "")
        for (name, kind), nodes in layers.items()
    )


def _calls(function: Any) -> Iterator[tuple[str, StepKind, tuple[str, ...]]]:
    for block in function.body.blocks:
        for binding in block.bindings:
            value: Any = getattr(binding, "value", None)
            word = str(getattr(getattr(value, "op", None), "name", ""))
            nodes = nodes_of(str(binding.var.name))
            if word == "relax.call_tir":
                yield str(value.args[0].name_hint), "kernel", nodes
            elif word == "relax.call_dps_packed":
                yield str(value.args[0].global_symbol), "region", nodes
