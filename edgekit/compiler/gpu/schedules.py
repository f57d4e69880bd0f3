"""Schedules for GPUs: each kernel gets the first rule that accepts it, with the GPU's limits.

A kernel that no rule accepts, or that its language can't express, gets the schedule of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from edgekit.compiler.gpu.each import schedule_each
from edgekit.compiler.gpu.kernels import ON_GPU, NotForGpuError, gpu_code
from edgekit.compiler.gpu.rows import schedule_rows
from edgekit.compiler.gpu.tiles import schedule_tiles
from edgekit.compiler.rewriting import module_pass
from edgekit.compiler.schedules.apply import RULE_ATTRIBUTE, schedule_function
from edgekit.compiler.schedules.machine import Machine
from edgekit.profiles.gpu import GpuLimits

Rule = Callable[[s_tir.Schedule, int], bool]


def schedule_for_gpu(limits: GpuLimits, machine: Machine, host: Any) -> Any:
    """Return the pass that schedules each kernel for the GPU, or for the CPU where it can't."""

    def transform(module: Any, context: Any) -> Any:
        del context
        repeated = _called_in_bodies(module)
        for variable, function in list(module.functions_items()):
            if isinstance(function, tirx.PrimFunc):
                may_be = variable.name_hint not in repeated
                made = _on_gpu(function, limits, host) if may_be else None
                module.update_func(variable, made or schedule_function(function, machine))
        return module

    return module_pass("ScheduleForGpu", transform)


def _called_in_bodies(module: Any) -> set[str]:
    """Return the kernels of loops and branches, which the CPU runs."""
    found: set[str] = set()

    def note(expression: Any) -> None:
        if isinstance(expression, tvm.ir.GlobalVar):
            found.add(expression.name_hint)

    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and variable.name_hint != "main":
            relax.analysis.post_order_visit(function, note)
    return found


def _on_gpu(function: Any, limits: GpuLimits, host: Any) -> Any | None:
    for name, rule in RULES:
        schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
        try:
            if not rule(schedule, min(_THREADS, limits.threads)):
                continue
            made = schedule.mod["main"]
            gpu_code({"main": made}, limits, host)
        except (s_tir.ScheduleError, NotForGpuError):
            continue
        return made.with_attr(RULE_ATTRIBUTE, f"gpu {name}").with_attr(ON_GPU, 1)
    return None


_THREADS = 128
"""Threads of a group, where the device takes so many: some multiples of what runs in step."""
RULES: tuple[tuple[str, Rule], ...] = (
    ("rows", schedule_rows),
    ("tiles", schedule_tiles),
    ("each", schedule_each),
)
"""Rules get a kernel's schedule and the threads of a group."""
