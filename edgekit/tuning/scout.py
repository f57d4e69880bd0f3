"""Finds a model's kernels that no offload took, and the candidates of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import s_tir

from edgekit.backends.offloading import fused_for
from edgekit.backends.plan import selection_of
from edgekit.base.tensors import TensorSpec
from edgekit.compiler.macs import shape_of_type
from edgekit.compiler.schedules import candidates
from edgekit.compiler.schedules.apply import NO_RULE, RULE_ATTRIBUTE, schedule_function
from edgekit.compiler.schedules.blocks import blocks_of
from edgekit.compiler.schedules.choices import Choice, TraceChoice
from edgekit.compiler.schedules.kernels import exact_key_of
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.problem import Problem
from edgekit.compiler.schedules.vector_math import use_vector_math
from edgekit.models.model import import_model
from edgekit.tuning.subjects import product_inputs
from edgekit.tuning.trials import (
    Found,
    calls_of,
    found_in,
    lines_and_pixels,
    product_function,
    tile_of_problem,
)
from edgekit.tuning.work import FindTasks, Subject, Task


def tasks_of(order: FindTasks, target: Any, machine: Machine) -> list[Task]:
    """Return the tasks with the most work first."""
    use_vector_math()
    selection = selection_of(order.offload) if order.offload.backends else None
    module = fused_for(import_model(order.source), target, offload=selection)
    calls: Counter[str] = Counter()
    tasks: dict[str, Task] = {}
    for function, call in calls_of(module):
        found = found_in(function, call)
        for task in () if found is None else _tasks_about(found, machine):
            calls[task.key] += 1
            tasks.setdefault(task.key, task)
    counted = [replace(task, calls=calls[task.key]) for task in tasks.values()]
    return sorted(counted, key=lambda task: -task.work * task.calls)


def _tasks_about(found: Found, machine: Machine) -> list[Task]:
    """Return a kernel's tasks. A product has two: its parameters, and the whole kernel's traces."""
    blocks = blocks_of(s_tir.Schedule(tvm.IRModule({"main": found.function})))
    family = str(schedule_function(found.function, machine).attrs[RULE_ATTRIBUTE])
    if not blocks or family == "scalar":
        return []
    work = sum(block.work for block in blocks) + sum(spec.elements for spec in found.inputs)
    operations = sum(block.work * (2 if block.reduced else 1) for block in blocks)
    subject = Subject(
        key=exact_key_of(found.function),
        words=_words(family, found),
        function=tvm.ir.save_json(found.function.without_attr("global_symbol")),
        problem="",
        inputs=found.inputs,
        output=found.output,
    )
    traced = family != NO_RULE
    if found.problem is None:
        own, *others = _choices(family, found, work, machine)
        return [Task(subject, 0, work, operations, own, tuple(others), traced)]
    problem = found.problem
    about = replace(
        subject,
        key=problem.key,
        words=problem.words,
        function="",
        problem=problem.text,
        inputs=product_inputs(problem),
        output=_result_of(problem, machine),
    )
    lines, pixels = lines_and_pixels(problem)
    own, *others = candidates.product_candidates(problem, lines, pixels, machine)
    return [
        Task(about, 0, work, operations, own, tuple(others), traced=False),
        Task(subject, 0, work, operations, TraceChoice(), (), traced, problem.key),
    ]


def _words(family: str, found: Found) -> str:
    if found.problem is not None:
        return f"{found.problem.words}, and what follows"
    return f"{family} {'x'.join(map(str, found.output.shape))}"


def _choices(family: str, found: Found, work: int, machine: Machine) -> list[Choice]:
    """Return the choices of a kernel, the rule's own first."""
    if family == "depthwise":
        *_, pixels, channels = found.output.shape
        return candidates.depthwise_candidates(channels, pixels, work, machine)
    if family == "generic":
        return candidates.generic_candidates(work, machine)
    return [TraceChoice()]


def _result_of(problem: Problem, machine: Machine) -> TensorSpec:
    function, _ = product_function(problem, partial(tile_of_problem, problem, None, machine))
    return TensorSpec("output", "float32", shape_of_type(function.params[-1].ty))
