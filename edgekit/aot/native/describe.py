"""What each step of a program in machine code is, for profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.aot.arena import reads_of
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
from edgekit.compiler.gpu.code import GpuCode, GpuKernel
from edgekit.compiler.steps import CodeStep, StepKind

if TYPE_CHECKING:
    from edgekit.compiler.work import Work

_KINDS: tuple[tuple[type, StepKind], ...] = (
    (CallKernel, "kernel"),
    (CallRegion, "region"),
    (HoldIndices, "indices"),
    (Loop, "loop"),
    (Branch, "branch"),
)


def described(
    program: Program, operations: Sequence[int | None], gpu: GpuCode | None = None
) -> tuple[CodeStep, ...]:
    """Describe the steps; `operations` are those of each."""
    found = zip(program.steps, operations, reads_of(program), strict=True)
    kernels = {} if gpu is None else gpu.kernels
    return tuple(
        _on_gpu(_described(step, program, count, reads), step, kernels)
        for step, count, reads in found
    )


def _on_gpu(described: CodeStep, step: Step, kernels: Mapping[str, GpuKernel]) -> CodeStep:
    what = step.operator
    kernel = kernels.get(what.kernel) if isinstance(what, CallKernel) else None
    if kernel is None:
        return described
    return replace(described, kind="gpu", launches=len(kernel.launches))


def operations_of(program: Program, work: Mapping[str, Work]) -> tuple[int | None, ...]:
    """Count each step's operations from the work of the kernels, which have their first names;
    None for a kernel that a later phase made."""

    def count(step: Step) -> int | None:
        calls = calls_of(step)
        if not calls.keys() <= work.keys():
            return None
        return sum(work[name].operations * times for name, times in calls.items())

    return tuple(map(count, program.steps))


def calls_of(step: Step) -> Counter[str]:
    """Count the calls of each kernel: of a loop, in all iterations; of a branch, in both bodies."""
    what = step.operator
    if isinstance(what, CallKernel):
        return Counter([what.kernel])
    calls: Counter[str] = Counter()
    if isinstance(what, CONTROL):
        times = (what.rule.count or 1) if isinstance(what, Loop) else 1
        for body in what.bodies:
            for inner in body.steps:
                for name, count in calls_of(inner).items():
                    calls[name] += count * times
    return calls


def _described(
    step: Step, program: Program, operations: int | None, reads: tuple[int, ...]
) -> CodeStep:
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
        operations,
        reads,
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
