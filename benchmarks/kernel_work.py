"""What each step of a model has to do, and the kernels and rules that do it.

Arithmetic and bytes are counted before any schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.aot.native.describe import calls_of
from edgekit.aot.native.steps import read_steps
from edgekit.aot.program import Step
from edgekit.aot.read import NeedsRuntimeError
from edgekit.backends.offloading import fused_for
from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.work import Work, work_of_kernels
from edgekit.models.model import Model
from edgekit.profiles.cpu import Target


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
    counted = work_of_kernels(module)
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
    times = calls_of(step)
    work = sum((counted[name] * count for name, count in times.items()), Work())
    return StepWork(tuple(times), tuple(rules[name] for name in times), step.layers, work)
