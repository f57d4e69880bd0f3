"""Compile a Relax module to an executable: run the phases of `pipeline.py`, then generate code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from edgekit.base.events import SILENT, Events
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import counted, size
from edgekit.compiler.phases import Dump, Phase, guarded, no_dump, run_phase, run_phases
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.cross.weights import Weight
from edgekit.profiles.board import Target


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
    dump: Dump = no_dump,
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
    with tvm_target:
        phases, kernels_compiled = _phases_for(target, tvm_target, choices)
    with events.stage("compile", total=len(phases) + 1) as stage, tvm_target:
        for phase in phases:
            module = run_phase(phase, module)
            dump(phase.name, module)
            if phase.name == "fuse":
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
        stage.result = f"{counted(len(kernels), 'kernel')}, {memory.words}"
    return Compiled(
        executable,
        kernels,
        _said_of(functions, RULE_ATTRIBUTE),
        _said_of(functions, CHOICE_ATTRIBUTE),
        memory,
        weights,
        checks_indices,
    )


def _phases_for(
    target: Target, tvm_target: Any, choices: Choices
) -> tuple[tuple[Phase, ...], AbstractContextManager[None]]:
    """Return the phases, and the context that code generation needs."""
    from edgekit.compiler.pipeline import for_cpu, for_gpu

    if target.gpu is None:
        return for_cpu(tvm_target, choices), nullcontext()
    from edgekit.compiler.cuda.kernels import compiling_kernels

    return for_gpu(tvm_target), compiling_kernels(target.gpu)


def _said_of(functions: Mapping[str, Any], attribute: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, str(function.attrs[attribute]))
        for name, function in functions.items()
        if function.attrs is not None and attribute in function.attrs
    )


def simplified(module: Any) -> Any:
    """Run the phase after which operators are counted."""
    load_tvm()
    from edgekit.compiler.pipeline import SIMPLIFY

    return run_phase(SIMPLIFY, module)


def _least_memory(module: Any) -> int | None:
    from edgekit.compiler.liveness import peak_activation_bytes
    from edgekit.compiler.macs import ShapeDependsOnDataError

    try:
        return peak_activation_bytes(module)
    except ShapeDependsOnDataError:
        return None


def fused(module: Any, target: Any = None) -> Any:
    """Run the phases that make kernels, for one CPU or for none in particular."""
    target = target or load_tvm().target.Target("llvm")
    before, _ = _around_schedule(target)
    with target:
        return run_phases(before, module)


def generated(module: Any, target: Any) -> Any:
    """Build the executable from scheduled kernels and the calls of them."""
    from edgekit.compiler.passes.finish import executable_of

    _, after = _around_schedule(target)
    with target:
        module = run_phases(after, module)
        return guarded("code generation", lambda: executable_of(module, target))


def _around_schedule(target: Any) -> tuple[tuple[Phase, ...], tuple[Phase, ...]]:
    """Return a CPU's phases before and after kernels get their schedules."""
    from edgekit.compiler.pipeline import for_cpu

    phases = for_cpu(target)
    place = [phase.name for phase in phases].index("schedule")
    return phases[:place], phases[place + 1 :]
