"""What each step of a model has to do, and the kernels and rules that do it.

Arithmetic and bytes are counted before any schedule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.aot.native.steps import read_steps
from edgekit.aot.operators import CONTROL, CallKernel, Loop
from edgekit.aot.program import Step
from edgekit.aot.read import NeedsRuntimeError
from edgekit.backends.offloading import fused_for
from edgekit.base.tvm_compat import load_tvm
from edgekit.models.model import Model
from edgekit.profiles.cpu import Target


@dataclass(frozen=True)
class Work:
    flops: int = 0
    """Two for each multiply-accumulate of a product, one for each element of other steps."""
    bytes: int = 0
    """The bytes of inputs, weights and results, each once; of those that are looked up, as many as
    are read."""
    integers: int = 0
    """Two for each multiply-accumulate of small integers."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops, self.bytes + other.bytes, self.integers + other.integers
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.flops * times, self.bytes * times, self.integers * times)


@dataclass(frozen=True)
class StepWork:
    kernels: tuple[str, ...]
    """The functions that compute the step: several for a loop."""
    rules: tuple[str, ...]
    """The rule of docs/schedules.md that scheduled each."""
    layers: tuple[str, ...]
    """The model's own names."""
    work: Work

    @property
    def rule(self) -> str:
        return ", ".join(dict.fromkeys(self.rules)) or "–"


def work_of_steps(model: Model, target: Target) -> dict[str, StepWork]:
    """Return the work of each step that a profile names."""
    tvm = load_tvm()
    from edgekit.compiler.phases import run_phases
    from edgekit.compiler.pipeline import FOR_PROGRAM, for_cpu
    from edgekit.compiler.schedules.apply import RULE_ATTRIBUTE

    tvm_target = tvm.target.Target(target.as_json())
    module = fused_for(model, tvm_target)
    counted = {name: _count(function) for name, function in _kernels(module)}
    with tvm_target:
        scheduled = run_phases((*for_cpu(tvm_target)[-1:], *FOR_PROGRAM), module)
    rules = {name: str(kernel.attrs[RULE_ATTRIBUTE]) for name, kernel in _kernels(scheduled)}
    try:
        program = read_steps(model, scheduled)
    except NeedsRuntimeError:
        return _of_calls(counted, rules)
    return {step.name: _of_step(step, counted, rules) for step in program.steps}


def _kernels(module: Any) -> Iterator[tuple[str, Any]]:
    import tvm

    for variable, function in module.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            yield str(variable.name_hint), function


def _of_calls(counted: Mapping[str, Work], rules: Mapping[str, str]) -> dict[str, StepWork]:
    """Return the work by kernel: TVM's virtual machine knows no steps."""
    found = {name: StepWork((name,), (rules[name],), (), work) for name, work in counted.items()}
    return {**found, **{f"{name}_in_place": step for name, step in found.items()}}


def _of_step(step: Step, counted: Mapping[str, Work], rules: Mapping[str, str]) -> StepWork:
    times = _calls(step)
    work = sum((counted[name] * count for name, count in times.items()), Work())
    return StepWork(tuple(times), tuple(rules[name] for name in times), step.layers, work)


def _calls(step: Step) -> Counter[str]:
    """Count the calls of each kernel: of a loop, in all iterations; of a branch, in both bodies."""
    what = step.operator
    if isinstance(what, CallKernel):
        return Counter([what.kernel])
    calls: Counter[str] = Counter()
    if isinstance(what, CONTROL):
        times = (what.rule.count or 1) if isinstance(what, Loop) else 1
        for body in what.bodies:
            for inner in body.steps:
                for name, count in _calls(inner).items():
                    calls[name] += count * times
    return calls


def _count(function: Any) -> Work:
    import tvm

    from edgekit.compiler.schedules.blocks import blocks_of

    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    try:
        blocks = blocks_of(schedule) or []
    except tvm.s_tir.ScheduleError:  # written as loops without blocks: sorting, running sums
        blocks = []
    flops = integers = 0
    reads: Counter[str] = Counter()
    for block in blocks:
        body = schedule.get(block.handle)
        for region in body.reads:
            reads[str(region.source.name)] += block.work * _elements(region)
        if block.reduced and _sums_integers(body):
            integers += 2 * block.work
        else:
            flops += (2 if block.reduced else 1) * block.work
    size = 0
    for parameter in function.params:
        if hasattr(parameter.ty, "shape"):
            elements = math.prod(int(getattr(one, "value", 0)) for one in parameter.ty.shape)
            read = reads.get(str(parameter.name), elements)
            size += min(elements, read) * tvm.DataType(str(parameter.ty.dtype)).itemsize
    return Work(flops, size, integers)


def _elements(region: Any) -> int:
    return math.prod(int(getattr(one.extent, "value", 1)) for one in region.region)


def _sums_integers(body: Any) -> bool:
    """Return whether a block adds products of small integers up in int32."""
    small = sum(str(region.source.dtype) in _SMALL for region in body.reads)
    return small >= 2 and all(str(region.source.dtype) == "int32" for region in body.writes)


_SMALL = ("int8", "uint8", "int16")
