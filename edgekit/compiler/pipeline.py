"""The compiler as one list of passes in named phases: read it from top to bottom.

TVM's default pipeline for a CPU target is not used: called without a pipeline, `tvm.compile` fuses
nothing on a CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from edgekit.base.events import SILENT, Events
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import size
from edgekit.compiler.phases import (
    FUSE,
    LAYOUT,
    LEGALIZE,
    LOWER,
    NO_DUMP,
    PLAN,
    QUANTIZE,
    SCHEDULE,
    SIMPLIFY,
    Dump,
    Phase,
    apply_phase,
    guarded,
)
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.cross.weights import Weight
from edgekit.profiles.board import Target

PHASES: tuple[Phase, ...] = (
    QUANTIZE,
    SIMPLIFY,
    LAYOUT,
    LEGALIZE,
    FUSE,
    SCHEDULE,
    LOWER,
    PLAN,
)
"""The phases for CPUs; compiler/cuda/phases.py has those for a GPU that runs without a library."""


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of activations. Inputs and outputs are the caller's and no part of `planned`."""

    planned: int
    least: int | None
    """The most bytes alive at once, inputs and outputs included; None if only known at run time."""

    @property
    def words(self) -> str:
        planned = f"{size(self.planned)} for activations"
        return planned if self.least is None else f"{planned}, {size(self.least)} alive at once"


@dataclass(frozen=True)
class Compiled:
    """TVM's result, before the board's own linker has seen it."""

    executable: Any
    kernels: tuple[str, ...]
    """The fused functions, in the order they were made."""
    rules: tuple[tuple[str, str], ...]
    """The name of each scheduled kernel, and the rule that scheduled it."""
    choices: tuple[tuple[str, str], ...]
    """The name of each kernel with a measured choice better than the rule's own, and that choice in
    words."""
    memory: MemoryPlan
    weights: tuple[Weight, ...]
    """The weights that the executable lacks and its library must have."""
    checks_indices: bool
    """Whether the library needs the function of cross/library_code.py."""


def compile_module(
    module: Any,
    target: Target,
    *,
    external: Collection[str] = (),
    weights_apart: bool = False,
    choices: Choices = NO_CHOICES,
    dump: Dump = NO_DUMP,
    events: Events = SILENT,
) -> Compiled:
    """Run every phase for `target`, then TVM's code generator.

    With `weights_apart` the executable runs only once it is linked with its weights. `external` are
    the library functions that the module calls and that are linked to it.
    """
    tvm = load_tvm()
    from edgekit.compiler.passes.called_functions import check_functions
    from edgekit.compiler.passes.finish import executable_of
    from edgekit.compiler.passes.lower_index_checks import link_index_errors
    from edgekit.compiler.passes.map_weights import map_weights
    from edgekit.compiler.passes.plan_memory import planned_bytes
    from edgekit.compiler.schedules.apply import CHOICE_ATTRIBUTE, RULE_ATTRIBUTE

    tvm_target = tvm.target.Target(target.as_json())
    least: int | None = None
    phases, kernels_compiled = _way_for(target, choices)
    with events.stage("compile", total=len(phases) + 1) as stage, tvm_target:
        for phase in phases:
            module = apply_phase(phase, module, tvm_target)
            dump(phase.name, module)
            if phase is FUSE:
                least = _least_memory(module)
            stage.advance(detail=phase.name)
        weights, checks_indices = (), False
        if weights_apart and target.gpu is None:
            module, weights = guarded("mapping the weights", partial(map_weights, module))
            module, checks_indices = link_index_errors(module)
        functions = {
            variable.name_hint: function
            for variable, function in module.functions_items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        kernels = tuple(functions)
        with kernels_compiled:
            executable = guarded("code generation", lambda: executable_of(module, tvm_target))
        check_functions(module, executable, external)
        stage.advance(detail="code generation")
        memory = MemoryPlan(planned_bytes(module), least)
        stage.result = f"{len(kernels)} kernels, {memory.words}"
    return Compiled(
        executable,
        kernels,
        _said_of(functions, RULE_ATTRIBUTE),
        _said_of(functions, CHOICE_ATTRIBUTE),
        memory,
        weights,
        checks_indices,
    )


def _way_for(
    target: Target, choices: Choices
) -> tuple[tuple[Phase, ...], AbstractContextManager[None]]:
    """Return the phases, and the context that code generation needs."""
    if target.gpu is None:
        return phases_with(choices), nullcontext()
    from edgekit.compiler.cuda.kernels import compiling_kernels
    from edgekit.compiler.cuda.phases import CUDA_PHASES

    return CUDA_PHASES, compiling_kernels(target.gpu)


def _said_of(functions: Mapping[str, Any], attribute: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, str(function.attrs[attribute]))
        for name, function in functions.items()
        if function.attrs is not None and attribute in function.attrs
    )


def simplified(module: Any) -> Any:
    """Run the phase after which operators are counted."""
    load_tvm()
    return apply_phase(SIMPLIFY, module, None)


def _least_memory(module: Any) -> int | None:
    from edgekit.compiler.liveness import peak_activation_bytes
    from edgekit.compiler.macs import ShapeDependsOnDataError

    try:
        return peak_activation_bytes(module)
    except ShapeDependsOnDataError:
        return None


def phases_with(choices: Choices) -> tuple[Phase, ...]:
    """Return the phases with measured choices in place of the rules' own."""
    return tuple(
        replace(phase, passes=partial(phase.passes, choices=choices))
        if phase in (LAYOUT, SCHEDULE)
        else phase
        for phase in PHASES
    )


def fused(module: Any, target: Any = None) -> Any:
    """Run the phases that make kernels, for one CPU or for none in particular."""
    target = target or load_tvm().target.Target("llvm")
    with target:
        for phase in PHASES[: PHASES.index(FUSE) + 1]:
            module = apply_phase(phase, module, target)
    return module


def generated(module: Any, target: Any) -> Any:
    """Build the executable from scheduled kernels and the calls of them."""
    from edgekit.compiler.passes.finish import executable_of

    with target:
        for phase in PHASES[PHASES.index(SCHEDULE) + 1 :]:
            module = apply_phase(phase, module, target)
        return guarded("code generation", lambda: executable_of(module, target))
