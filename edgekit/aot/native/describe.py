"""What each step of a program in machine code is, for profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.aot.operators import (
    CONTROL,
    Branch,
    CallKernel,
    CallRegion,
    Copy,
    HoldIndices,
    Loop,
    Weight,
)
from edgekit.aot.program import Program, Step
from edgekit.compiler.steps import CodeStep, StepKind

_KINDS: tuple[tuple[type, StepKind], ...] = (
    (CallKernel, "kernel"),
    (CallRegion, "region"),
    (HoldIndices, "indices"),
    (Loop, "loop"),
    (Branch, "branch"),
)


def described(program: Program) -> tuple[CodeStep, ...]:
    return tuple(_described(step, program) for step in program.steps)


def _described(step: Step, program: Program) -> CodeStep:
    what: Any = step.operator
    kinds = (kind for operator, kind in _KINDS if isinstance(what, operator))
    kind: StepKind = next(kinds, "copy")
    weights = [one.array.nbytes for one in getattr(what, "operands", ()) if isinstance(one, Weight)]
    buffers = {*step.inputs, *step.outputs}
    return CodeStep(
        step.name,
        kind,
        tuple(dict.fromkeys(layer for layer in _layers(step) if layer)),
        what.symbol if isinstance(what, CallRegion) else "",
        sum(weights) + sum(program.buffers[buffer].bytes for buffer in buffers),
    )


def _layers(step: Step) -> Iterator[str]:
    """Yield the layers of a step, then those of the lists of steps that it runs."""
    if isinstance(step.operator, Copy):
        return  # named after what it copies
    yield from step.layers
    if isinstance(step.operator, CONTROL):
        for body in step.operator.bodies:
            for inner in body.steps:
                yield from _layers(inner)
