"""Compile a model to a program in machine code: phases, steps, one arena, kernels, sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgekit.aot.arena import plan_arena
from edgekit.aot.native.steps import NeedsRuntimeError, read_steps
from edgekit.aot.native.write import NativeProgram
from edgekit.aot.operators import CallKernel
from edgekit.aot.program import Program, Step
from edgekit.compiler.objects import ALIGNMENT, compile_kernels
from edgekit.compiler.passes.in_place import in_place, overwritable
from edgekit.compiler.phases import Phase
from edgekit.models.model import Model


@dataclass(frozen=True)
class _Needs:
    """What the plan of the arena asks of a step."""

    scratch: int = 0
    in_place: tuple[tuple[int, int], ...] = ()


def program_of(model: Model, module: Any) -> ForProgram | None:
    """Return the form of a scheduled module as a program; None if it needs TVM's runtime."""
    try:
        read_steps(model, module)
    except NeedsRuntimeError:
        return None
    return ForProgram(model)


@dataclass(frozen=True)
class ForProgram:
    """The form of a program in machine code: kernels, called by C that is written for the model."""

    model: Model

    @property
    def phases(self) -> tuple[Phase, ...]:
        from edgekit.compiler.pipeline import FOR_PROGRAM

        return FOR_PROGRAM

    def generate(self, module: Any, target: Any) -> tuple[NativeProgram, int]:
        from tvm import tirx

        kernels = {
            variable.name_hint: function
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc)
        }
        program, pairs = _in_place(read_steps(self.model, module), kernels)
        calls = [step.operator for step in program.steps if isinstance(step.operator, CallKernel)]
        machine_code, scratch = compile_kernels(
            {c.kernel: kernels[c.kernel] for c in calls}, target
        )
        sizes = [
            scratch[step.operator.kernel].buffers if isinstance(step.operator, CallKernel) else ()
            for step in program.steps
        ]
        needs = [_Needs(sum(own), pair) for own, pair in zip(sizes, pairs, strict=True)]
        arena = plan_arena(program, needs, ALIGNMENT)
        offsets = [
            tuple((start or 0) + sum(own[:k]) for k in range(len(own)))
            for start, own in zip(arena.scratch, sizes, strict=True)
        ]
        return NativeProgram(program, arena, scratch, tuple(offsets), machine_code), arena.bytes


_Pairs = tuple[tuple[int, int], ...]


def _in_place(program: Program, kernels: dict[str, Any]) -> tuple[Program, list[_Pairs]]:
    """Let kernels overwrite an operand where that makes the arena smaller. Such a kernel has one
    operand less, and is added to `kernels`."""
    offers = [_offers(step, program, kernels) for step in program.steps]
    apart: list[_Pairs] = [() for _ in offers]
    plans = [
        plan_arena(program, [_Needs(0, pairs) for pairs in way], ALIGNMENT)
        for way in (apart, offers)
    ]
    if plans[1].bytes >= plans[0].bytes:
        return program, apart
    taken = set(plans[1].in_place)
    steps = list(program.steps)
    for index in taken:
        step = steps[index]
        call = step.operator
        assert isinstance(call, CallKernel)
        ((source, _),) = offers[index]
        place = call.operands.index(source)
        name = f"{call.kernel}_over_{place}"
        if name not in kernels:
            kernels[name] = in_place(kernels[call.kernel], place)
        operands = call.operands[:place] + call.operands[place + 1 :]
        steps[index] = replace(step, operator=CallKernel(name, operands))
    chosen = [pairs if index in taken else () for index, pairs in enumerate(offers)]
    return replace(program, steps=tuple(steps)), chosen


def _offers(step: Step, program: Program, kernels: Mapping[str, Any]) -> _Pairs:
    """Return the operand that the step's kernel may overwrite: none of the caller's memory."""
    call = step.operator
    if not isinstance(call, CallKernel) or len(step.outputs) != 1:
        return ()
    result = step.outputs[0]
    own = {
        place: operand
        for place, operand in enumerate(call.operands)
        if isinstance(operand, int)
        and call.operands.count(operand) == 1
        and step.inputs[operand] >= len(program.inputs)
        and program.buffers[step.inputs[operand]].bytes == program.buffers[result].bytes
    }
    if not own or result in program.results:
        return ()
    place = min(overwritable(kernels[call.kernel]).intersection(own), default=None)
    return () if place is None else ((own[place], 0),)
