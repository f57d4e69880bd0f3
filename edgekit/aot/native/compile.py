"""Compile a model to a program in machine code: phases, steps, one arena, kernels, sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.aot.arena import plan_arena
from edgekit.aot.native.describe import operations_of
from edgekit.aot.native.planned import PlannedBranch, PlannedLoop, PlannedSteps
from edgekit.aot.native.steps import read_steps
from edgekit.aot.native.write import NativeProgram
from edgekit.aot.operators import CONTROL, CallKernel
from edgekit.aot.program import Program, Step
from edgekit.aot.read import NeedsRuntimeError
from edgekit.compiler.gpu.code import ALIGNMENT as GPU_ALIGNMENT
from edgekit.compiler.gpu.code import GpuCode
from edgekit.compiler.gpu.kernels import ON_GPU, compiled, gpu_code
from edgekit.compiler.loops import LoopRule, Rule
from edgekit.compiler.objects import ALIGNMENT, Scratch, compile_kernels, padded
from edgekit.compiler.passes.in_place import in_place, overwritable
from edgekit.compiler.phases import Phase
from edgekit.compiler.work import Work
from edgekit.models.model import Model
from edgekit.profiles.gpu import GpuLimits


@dataclass(frozen=True)
class _Needs:
    """What the plan of the arena asks of a step."""

    scratch: int = 0
    in_place: tuple[tuple[int, int], ...] = ()


def program_of(
    model: Model,
    module: Any,
    limits: GpuLimits | None = None,
    regions_on_gpu: frozenset[str] = frozenset(),
) -> ForProgram | None:
    """Return the form of a scheduled module as a program; None if it needs TVM's runtime."""
    try:
        read_steps(model, module)
    except NeedsRuntimeError:
        return None
    return ForProgram(model, limits, regions_on_gpu)


@dataclass(frozen=True)
class ForProgram:
    """The form of a program in machine code: kernels, called by C that is written for the model."""

    model: Model
    limits: GpuLimits | None = None
    """The limits of the GPU that runs what was scheduled for it."""
    regions_on_gpu: frozenset[str] = frozenset()
    """The regions that take tensors where they lie on the GPU."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        from edgekit.compiler.pipeline import FOR_PROGRAM

        return FOR_PROGRAM

    def generate(
        self, module: Any, target: Any, work: Mapping[str, Work]
    ) -> tuple[NativeProgram, int]:
        from tvm import tirx

        kernels = {
            variable.name_hint: function
            for variable, function in module.functions_items()
            if isinstance(function, tirx.PrimFunc)
        }
        on_gpu = {name for name, kernel in kernels.items() if ON_GPU in (kernel.attrs or {})}
        program = read_steps(self.model, module)
        operations = operations_of(program, work)
        steps = _in_place(program, kernels, may_share=not on_gpu)
        calls = {call.kernel: kernels[call.kernel] for call in _calls(steps.program)}
        gpu: GpuCode | None = None
        if self.limits is not None and on_gpu:
            own = {name: calls[name] for name in calls if name in on_gpu}
            gpu = replace(
                compiled(gpu_code(own, self.limits, target), self.limits),
                regions=self.regions_on_gpu,
            )
        own = {name: kernel for name, kernel in calls.items() if name not in on_gpu}
        machine_code, scratch = compile_kernels(own, target)
        planned = _planned(steps, scratch, gpu)
        code = NativeProgram(planned, scratch, machine_code, operations, gpu)
        return code, planned.bytes


def _calls(program: Program) -> Iterator[CallKernel]:
    for step in program.steps:
        if isinstance(step.operator, CallKernel):
            yield step.operator
        elif isinstance(step.operator, CONTROL):
            for body in step.operator.bodies:
                yield from _calls(body)


def _planned(
    steps: _Steps, scratch: Mapping[str, Scratch], gpu: GpuCode | None = None
) -> PlannedSteps:
    """Place every buffer of the steps, and those of the lists of steps that they run among their
    scratch. Where a GPU has the arena, the scratch of the CPU's steps lies behind it."""
    program = steps.program
    control = {index: _planned_control(one, scratch) for index, one in steps.control.items()}
    sizes: list[tuple[int, ...]] = []
    behind: list[bool] = []
    for index, step in enumerate(program.steps):
        what = step.operator
        is_on_gpu = gpu is not None and isinstance(what, CallKernel) and what.kernel in gpu.kernels
        behind.append(gpu is not None and not is_on_gpu)
        if gpu is not None and isinstance(what, CallKernel) and is_on_gpu:
            sizes.append(gpu.kernels[what.kernel].scratch)
        elif isinstance(what, CallKernel):
            sizes.append(scratch[what.kernel].buffers)
        else:
            sizes.append((control[index].bytes,) if index in control else ())
    needs = [
        _Needs(0 if is_behind else sum(own), pair)
        for own, pair, is_behind in zip(sizes, steps.pairs, behind, strict=True)
    ]
    arena = plan_arena(program, needs, ALIGNMENT if gpu is None else GPU_ALIGNMENT)
    shared = arena.bytes if gpu is None else max(arena.bytes, GPU_ALIGNMENT)
    starts = [
        shared if is_behind else (start or 0)
        for start, is_behind in zip(arena.scratch, behind, strict=True)
    ]
    offsets = [
        tuple(start + sum(own[:k]) for k in range(len(own)))
        for start, own in zip(starts, sizes, strict=True)
    ]
    own = max(
        (sum(own) for own, is_behind in zip(sizes, behind, strict=True) if is_behind), default=0
    )
    return PlannedSteps(program, arena, tuple(offsets), control, shared, shared + own)


def _planned_control(
    control: _Control, scratch: Mapping[str, Scratch]
) -> PlannedLoop | PlannedBranch:
    bodies = tuple(_planned(body, scratch) for body in control.bodies)
    if isinstance(control.rule, LoopRule):
        return _planned_loop(control.rule, *bodies)
    # Only one of them runs.
    return PlannedBranch(bodies, max(body.arena.bytes for body in bodies))


def _planned_loop(rule: LoopRule, steps: PlannedSteps) -> PlannedLoop:
    """Give memory to one copy of each state, and to slices and pieces that kernels can't address
    in their stack."""
    program = steps.program
    end = steps.arena.bytes

    def memory(buffer: int) -> int:
        nonlocal end
        end, start = end + padded(program.buffers[buffer].bytes), end
        return start

    def apart(buffers: Sequence[int]) -> tuple[int | None, ...]:
        misaligned = (program.buffers[buffer].bytes % ALIGNMENT for buffer in buffers)
        return tuple(
            memory(buffer) if is_off else None
            for buffer, is_off in zip(buffers, misaligned, strict=True)
        )

    states = tuple(memory(buffer) for buffer in program.results[: rule.states])
    slices = apart(range(len(rule.sliced)))
    pieces = apart(program.results[rule.states :])
    return PlannedLoop(rule, steps, states, slices, pieces, end)


_Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Steps:
    """A program whose kernels work in place where that is worth it."""

    program: Program
    pairs: list[_Pairs]
    """The input that each step's output overwrites."""
    control: Mapping[int, _Control]
    """The steps that run lists of steps, by their place."""


@dataclass(frozen=True)
class _Control:
    rule: Rule
    bodies: tuple[_Steps, ...]


def _in_place(program: Program, kernels: dict[str, Any], *, may_share: bool = True) -> _Steps:
    """Let kernels overwrite an operand where that makes the arena smaller. Such a kernel has one
    operand less, and is added to `kernels`. Steps of a GPU's program don't share: what the CPU
    reads and what it writes of the device's memory are lent apart."""
    steps = list(program.steps)
    control: dict[int, _Control] = {}
    for index, step in enumerate(program.steps):
        what = step.operator
        if isinstance(what, CONTROL):
            bodies = tuple(_in_place(body, kernels) for body in what.bodies)
            control[index] = _Control(what.rule, bodies)
            inner = tuple(body.program for body in bodies)
            steps[index] = replace(step, operator=replace(what, bodies=inner))
    program = replace(program, steps=tuple(steps))
    offers = [_offers(step, program, kernels) for step in program.steps]
    apart: list[_Pairs] = [() for _ in offers]
    plans = [
        plan_arena(program, [_Needs(0, pairs) for pairs in way], ALIGNMENT)
        for way in (apart, offers)
    ]
    if not may_share or plans[1].bytes >= plans[0].bytes:
        return _Steps(program, apart, control)
    taken = set(plans[1].in_place)
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
    return _Steps(replace(program, steps=tuple(steps)), chosen, control)


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
        and step.inputs.count(step.inputs[operand]) == 1
        and step.inputs[operand] >= len(program.inputs)
        and program.buffers[step.inputs[operand]].bytes == program.buffers[result].bytes
    }
    if not own or result in program.results:
        return ()
    place = min(overwritable(kernels[call.kernel]).intersection(own), default=None)
    return () if place is None else ((own[place], 0),)
