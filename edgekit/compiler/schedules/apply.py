"""Schedule each kernel by the first rule that accepts it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir

from edgekit.compiler.rewriting import on_kernels
from edgekit.compiler.schedules.blocks import Block, blocks_of, run_parallel
from edgekit.compiler.schedules.choices import FAMILIES, NO_CHOICES, Choice, Choices, TraceChoice
from edgekit.compiler.schedules.depthwise import schedule_depthwise
from edgekit.compiler.schedules.generic import schedule_generic
from edgekit.compiler.schedules.int8 import schedule_int8
from edgekit.compiler.schedules.kernels import exact_key_of, key_of
from edgekit.compiler.schedules.machine import Machine
from edgekit.compiler.schedules.pair import schedule_pair
from edgekit.compiler.schedules.product import schedule_product
from edgekit.compiler.schedules.starts import finite_starts, infinite_starts
from edgekit.compiler.schedules.trace import schedule_by_trace
from edgekit.compiler.schedules.winograd import schedule_winograd

ONE_BY_ONE = frozenset(
    f"tirx.{name}"
    for name in ("atan2", "copysign", "fmod", "hypot", "ldexp", "nextafter", "popcount")
)
"""Functions that LLVM has for single numbers only."""
ONE_BY_ONE_IN_DOUBLE = frozenset(
    f"tirx.{name}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh"),
        *("cosh", "erf", "log1p", "sinh"),
    )
)
"""The same of double precision. In single precision they are those of passes/vector_math.py."""


def schedule_scalar(schedule: s_tir.Schedule, machine: Machine) -> bool:
    blocks = blocks_of(schedule) or []
    if not any(_is_one_by_one(schedule, block) for block in blocks):
        return False
    for block in blocks:
        loops = list(schedule.get_loops(block.handle))[: len(block.spatial)]
        if loops:
            run_parallel(schedule, loops, block.work, machine)
    return True


def _is_one_by_one(schedule: s_tir.Schedule, block: Block) -> bool:
    found: list[bool] = []

    def look(call: Any) -> None:
        name = str(getattr(call.op, "name", ""))
        is_double = str(call.ty) == "float64"
        found.append(name in ONE_BY_ONE or (is_double and name in ONE_BY_ONE_IN_DOUBLE))

    tvm_ffi.structural_walk(schedule.get(block.handle).body, (ir.Call, look))
    return any(found)


Rule = Callable[..., bool]
"""A function from a schedule and a machine to whether it scheduled the kernel. The rules in
`choices.FAMILIES` also take a choice."""

RULES: tuple[tuple[str, Rule], ...] = (
    ("scalar", schedule_scalar),
    ("product", schedule_product),
    ("pair", schedule_pair),
    ("depthwise", schedule_depthwise),
    ("int8", schedule_int8),
    ("winograd", schedule_winograd),
    ("generic", schedule_generic),
)

RULE_ATTRIBUTE = "edgekit.schedule"
CHOICE_ATTRIBUTE = "edgekit.choice"
"""The attribute that describes a measured choice better than the rule's own, in words."""

NO_RULE = "none"

TRACE_RULE = "trace"


def schedule_function(function: Any, machine: Machine, choice: Choice | None = None) -> Any:
    """Return the function with its loops in another order and the rule's name as an attribute.

    A rule that fails leaves the function to the next one: any order of loops is right, and one that
    TVM can't prove right is not used.
    """
    if isinstance(choice, TraceChoice) and choice.trace:
        traced = _scheduled(function, TRACE_RULE, partial(_by_trace, choice=choice), machine)
        if traced is not None:
            return traced.with_attr(CHOICE_ATTRIBUTE, choice.words)
    for name, rule in RULES:
        if choice is not None and type(choice) is FAMILIES.get(name):
            chosen = _scheduled(function, name, partial(rule, choice=choice), machine)
            if chosen is not None:
                return chosen.with_attr(CHOICE_ATTRIBUTE, choice.words)
        scheduled = _scheduled(function, name, rule, machine)
        if scheduled is not None:
            return scheduled
    return function.with_attr(RULE_ATTRIBUTE, NO_RULE)


def _by_trace(schedule: s_tir.Schedule, machine: Machine, choice: TraceChoice) -> bool:
    del machine
    schedule_by_trace(schedule, choice.trace)
    return True


def _scheduled(function: Any, name: str, rule: Rule, machine: Machine) -> Any | None:
    finite = finite_starts(function)
    schedule = s_tir.Schedule(tvm.IRModule({"main": function if finite is None else finite}))
    try:
        taken = rule(schedule, machine)
    except s_tir.ScheduleError:
        return None
    if not taken:
        return None
    scheduled = schedule.mod["main"].with_attr(RULE_ATTRIBUTE, name)
    return scheduled if finite is None else infinite_starts(scheduled)


def schedule_kernels(machine: Machine, choices: Choices = NO_CHOICES) -> Any:
    """Return the pass that schedules every kernel, with measured choices where there are any."""
    picked = choices.of_kernel

    def scheduled(function: Any) -> Any:
        choice = picked.get(key_of(function)) if picked else None
        if choices.traces:
            choice = picked.get(exact_key_of(function), choice)
        return schedule_function(function, machine, choice)

    return on_kernels("ScheduleKernels", scheduled)
