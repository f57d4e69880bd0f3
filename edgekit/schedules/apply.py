"""Which rule schedules which kernel: the first that takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import s_tir, tirx

from edgekit.schedules.depthwise import schedule_depthwise
from edgekit.schedules.generic import schedule_generic
from edgekit.schedules.machine import Machine
from edgekit.schedules.product import schedule_product
from edgekit.schedules.scalar import schedule_scalar

Rule = Callable[[s_tir.Schedule, Machine], bool]

RULES: tuple[tuple[str, Rule], ...] = (
    ("scalar", schedule_scalar),
    ("product", schedule_product),
    ("depthwise", schedule_depthwise),
    ("generic", schedule_generic),
)

RULE_ATTRIBUTE = "edgekit.schedule"


NO_RULE = "none"


def schedule_function(function: Any, machine: Machine) -> Any:
    """The function with its loops in another order, and the name of the rule as an attribute.

    A rule that can't do what it meant to leaves the function to the next one: any order of loops
    is right, and one that TVM can't prove right is not taken.
    """
    for name, rule in RULES:
        schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
        try:
            taken = rule(schedule, machine)
        except s_tir.ScheduleError:
            continue
        if taken:
            return schedule.mod["main"].with_attr(RULE_ATTRIBUTE, name)
    return function.with_attr(RULE_ATTRIBUTE, NO_RULE)


@tvm.transform.module_pass(opt_level=0, name="edgekit.ScheduleKernels")
class ScheduleKernels:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def transform_module(self, module: Any, context: Any) -> Any:
        del context
        for variable, function in list(module.functions_items()):
            if isinstance(function, tirx.PrimFunc):
                module.update_func(variable, schedule_function(function, self._machine))
        return module
