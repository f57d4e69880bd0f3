"""The generator of last resort: TVM's own loop nests, scheduled for one core, as C.

It supports every step, and is the only generator for floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgekit.aot.kernel import NO_SUCH_WAY, Constant, Declined, Kernel
from edgekit.aot.operators import LoopNest
from edgekit.aot.program import Step
from edgekit.profiles.architecture import architectures
from edgekit.profiles.cpu import Cpu

if TYPE_CHECKING:
    from edgekit.aot.loops.schedule import Scheduled
    from edgekit.base.arrays import Array

_FLOAT_REGISTERS = 32
_RESERVED_REGISTERS = 5
"""Registers of the core that hold addresses and the program's state, and no numbers."""

_REGISTERS = (6, 8, 14, 20, 24)
"""Other numbers of simultaneous sums that are worth measuring."""
_IN_ORDER = "as TVM left it"

_ONE_BY_ONE = """\
/* These sums are in registers already; GCC would gather them into vectors, at twice the cost. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__ARM_FEATURE_MVE)
#define EDGEKIT_ONE_BY_ONE __attribute__((optimize("no-tree-vectorize")))
#else
#define EDGEKIT_ONE_BY_ONE
#endif
"""


@dataclass(frozen=True)
class LoopGenerator:
    name: str = "tvm"

    def ways(self, step: Step, cpu: Cpu) -> tuple[str, ...]:
        nest = step.operator
        if not isinstance(nest, LoopNest) or not _sums_up(nest):
            return ()
        own = _registers(step, nest, cpu)
        return (*(f"registers {n}" for n in _REGISTERS if n != own and n < own + 8), _IN_ORDER)

    def offer(self, step: Step, cpu: Cpu, way: str = "") -> Kernel | Declined:
        nest = step.operator
        if not isinstance(nest, LoopNest):
            return Declined("it computes what TVM left as loops, and this is an operator")
        # TVM is imported only in the process that compiles.
        from edgekit.aot.loops.expressions import NotInCError
        from edgekit.aot.loops.schedule import Scheduled, schedule_loops

        places = range(len(step.inputs), len(step.inputs) + len(nest.constants))
        if way and way not in self.ways(step, cpu):
            return NO_SUCH_WAY
        registers = int(way.split()[1]) if way.startswith("registers") else None
        scheduled = (
            Scheduled(nest.function, {})
            if way == _IN_ORDER
            else schedule_loops(nest.function, registers or _registers(step, nest, cpu), places)
        )
        failure = ""
        # Any order of loops is right: where TVM can't convert the schedule to C, use the first
        # order.
        for attempt in (scheduled, Scheduled(nest.function, {})):
            try:
                kernel = self._kernel(step, nest, attempt, cpu)
            except NotInCError as error:
                return Declined(str(error))
            except RuntimeError as error:  # what TVM raises for any failure
                failure = (str(error).strip().splitlines() or [""])[-1]
                continue
            return replace(kernel, note=f"in TVM's own order: {failure}") if failure else kernel
        return Declined(f"TVM failed: {failure}")

    def _kernel(self, step: Step, nest: LoopNest, scheduled: Scheduled, cpu: Cpu) -> Kernel:
        from edgekit.aot.loops.function import c_function
        from edgekit.aot.loops.schedule import plain_loops

        inputs, outputs = len(step.inputs), len(step.outputs)
        constants = []
        for k, (name, array) in enumerate(zip(_constant_names(nest), nest.constants, strict=True)):
            panel = scheduled.panels.get(inputs + k)
            constants.append(Constant(name, array if panel is None else in_panels(array, panel)))
        names = [
            *_numbered("x", inputs),
            *(f"{step.name}_{constant.name}" for constant in constants),
            *_numbered("y", outputs),
        ]
        written = c_function(plain_loops(scheduled.function), step.name, names, inputs, outputs)
        one_by_one = scheduled.has_points and "mve-float" in cpu.features
        return Kernel(
            maker=self.name,
            source=f"EDGEKIT_ONE_BY_ONE {written.source}" if one_by_one else written.source,
            constants=tuple(constants),
            helpers=(*written.helpers, *((_ONE_BY_ONE,) if one_by_one else ())),
            headers=("<math.h>",) if written.uses_math else (),
            scratch=written.scratch,
            in_place=written.in_place,
            note="weights in the order they are read" if scheduled.panels else "",
        )


def in_panels(array: Array, width: int) -> Array:
    """Split the last axis into panels, which become the first axis."""
    import numpy as np

    cut = array.reshape(*array.shape[:-1], -1, width)
    return np.ascontiguousarray(np.moveaxis(cut, -2, 0))


def _sums_up(nest: LoopNest) -> bool:
    import tvm
    from tvm import s_tir

    from edgekit.compiler.schedules.blocks import blocks_of

    schedule = s_tir.Schedule(tvm.IRModule({"main": nest.function}))
    try:
        schedule.get_sblock("root")
    except s_tir.ScheduleError:
        return False
    return any(block.reduced for block in blocks_of(schedule) or [])


def _registers(step: Step, nest: LoopNest, cpu: Cpu) -> int:
    computes_floats = any(
        str(parameter.ty.dtype) == "float32" for parameter in nest.function.params
    )
    known = architectures()[cpu.arch]
    has_unit = any(
        known.flags[feature].floats for feature in cpu.features if feature in known.flags
    )
    if computes_floats and (has_unit or known.has_os):
        return _FLOAT_REGISTERS - 2
    return known.core_registers - _RESERVED_REGISTERS


def _numbered(word: str, count: int) -> list[str]:
    return [word] if count == 1 else [f"{word}{k}" for k in range(count)]


def _constant_names(nest: LoopNest) -> list[str]:
    """Name the constants as people do: the largest are weights, vectors are biases."""
    sizes: list[Any] = [array.size for array in nest.constants]
    names: list[str] = []
    for array in nest.constants:
        is_vector = array.size == max(array.shape, default=1)
        word = "weights" if array.size == max(sizes) and not is_vector else "bias"
        number = sum(name.rstrip("0123456789") == word for name in names)
        names.append(f"{word}{number + 1}" if number else word)
    return names
