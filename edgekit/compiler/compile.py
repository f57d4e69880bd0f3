"""Compile a Relax module to an executable: run the phases of `pipeline.py`, then generate code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from edgekit.base.events import SILENT, Events
from edgekit.base.tvm_compat import load_tvm
from edgekit.base.wording import counted, size
from edgekit.compiler.phases import Dump, Phase, guarded, no_dump, run_phase, run_phases
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.compiler.steps import CodeArena, CodeStep
from edgekit.cross.library_code import write_index_error
from edgekit.cross.link import Objects, export_objects
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.weights import Weight, write_weights
from edgekit.profiles.cpu import Target

if TYPE_CHECKING:
    from edgekit.compiler.work import Work


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
class Machine:
    """A model for TVM's virtual machine, before the board's own linker has seen it."""

    executable: Any
    weights: tuple[Weight, ...]
    """The weights that the executable lacks and its library must have."""
    checks_indices: bool
    """Whether the library needs the function of cross/library_code.py."""
    steps: tuple[CodeStep, ...] = ()
    memory: ClassVar[None] = None
    needs_runtime: ClassVar[bool] = True

    def write(self, target: Target, folder: Path) -> Objects:
        """Write TVM's objects and the weights into the folder."""
        objects = export_objects(self.executable, target.triple, folder)
        sources = write_weights(self.weights, folder)
        if self.checks_indices:
            sources = (*sources, *write_index_error(folder))
        return objects.with_sources(sources, ffi_headers())


@dataclass(frozen=True)
class Compiled:
    """A compiled model, before the board's own compiler and linker have seen it."""

    code: Code
    """The result of the last phases: a `Machine`, or a program without a runtime."""
    kernels: tuple[str, ...]
    """The fused functions, in the order they were made."""
    rules: tuple[tuple[str, str], ...]
    """The name of each scheduled kernel, and the rule that scheduled it."""
    choices: tuple[tuple[str, str], ...]
    """The name of each kernel with a measured choice better than the rule's own, and that choice in
    words."""
    memory: MemoryPlan


class Code(Protocol):
    @property
    def needs_runtime(self) -> bool:
        """Whether TVM's virtual machine runs it."""
        ...

    @property
    def steps(self) -> tuple[CodeStep, ...]: ...

    @property
    def memory(self) -> CodeArena | None:
        """The planned memory of a program; None if TVM's virtual machine allocates it."""
        ...

    def write(self, target: Target, folder: Path) -> Objects:
        """Write what the board's linker needs into the folder."""
        ...


class Form(Protocol):
    """What becomes of a scheduled module."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases after kernels have got their schedules."""
        ...

    def generate(self, module: Any, target: Any, work: Mapping[str, Work]) -> tuple[Code, int]:
        """Generate the code; return it with the bytes that it plans for activations. `work` is that
        of each kernel."""
        ...


def compile_module(
    module: Any,
    target: Target,
    form_of: Callable[[Any], Form],
    *,
    choices: Choices = NO_CHOICES,
    dump: Dump = no_dump,
    events: Events = SILENT,
) -> Compiled:
    """Run every phase for `target`, then generate code in the form that suits the module."""
    tvm = load_tvm()
    from edgekit.compiler.schedules.apply import CHOICE_ATTRIBUTE, RULE_ATTRIBUTE
    from edgekit.compiler.work import work_of_kernels

    tvm_target = tvm.target.Target(target.as_json())
    least: int | None = None
    work: Mapping[str, Work] = {}
    with tvm_target:
        phases = _phases_for(target, tvm_target, choices)
    with events.stage("compile", total=len(phases) + 1) as stage, tvm_target:
        for phase in phases:
            module = run_phase(phase, module)
            dump(phase.name, module)
            if phase.name == "fuse":
                least, work = _least_memory(module), work_of_kernels(module)
            stage.finish(phase.name)
        form = form_of(module)
        for phase in form.phases:
            module = run_phase(phase, module)
            dump(phase.name, module)
        functions = {
            variable.name_hint: function
            for variable, function in module.functions_items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        code, planned = guarded("code generation", lambda: form.generate(module, tvm_target, work))
        stage.finish("code generation")
        memory = MemoryPlan(planned, least)
        stage.result = f"{counted(len(functions), 'kernel')}, {memory.words}"
    return Compiled(
        code,
        tuple(functions),
        _said_of(functions, RULE_ATTRIBUTE),
        _said_of(functions, CHOICE_ATTRIBUTE),
        memory,
    )


@dataclass(frozen=True)
class ForMachine:
    """The form of TVM's virtual machine.

    With `weights_apart` the executable runs only once it is linked with its weights. `external` are
    the library functions that the module calls and that are linked to it.
    """

    external: Collection[str] = ()
    weights_apart: bool = False
    steps: tuple[CodeStep, ...] = ()

    @property
    def phases(self) -> tuple[Phase, ...]:
        from edgekit.compiler.pipeline import FOR_MACHINE

        return FOR_MACHINE

    def generate(self, module: Any, target: Any, work: Mapping[str, Work]) -> tuple[Machine, int]:
        from edgekit.compiler.passes.called_functions import check_functions
        from edgekit.compiler.passes.finish import executable_of
        from edgekit.compiler.passes.lower_index_checks import link_index_errors
        from edgekit.compiler.passes.map_weights import map_weights
        from edgekit.compiler.passes.plan_memory import planned_bytes

        weights: tuple[Weight, ...] = ()
        checks_indices = False
        if self.weights_apart:
            module, weights = guarded("mapping the weights", partial(map_weights, module))
            module, checks_indices = link_index_errors(module)
        executable = executable_of(module, target)
        check_functions(module, executable, self.external)
        return Machine(executable, weights, checks_indices, self.steps), planned_bytes(module)


def _phases_for(target: Target, tvm_target: Any, choices: Choices) -> tuple[Phase, ...]:
    from edgekit.compiler.pipeline import for_cpu, for_gpu

    if target.gpu is None:
        return for_cpu(tvm_target, choices)
    return for_gpu(tvm_target, target.gpu)


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
    from edgekit.compiler.pipeline import for_cpu

    target = target or load_tvm().target.Target("llvm")
    with target:
        return run_phases(for_cpu(target)[:-1], module)


def generated(module: Any, target: Any) -> Any:
    """Build the executable from scheduled kernels and the calls of them."""
    form = ForMachine()
    with target:
        module = run_phases(form.phases, module)
        machine, _ = guarded("code generation", lambda: form.generate(module, target, {}))
    return machine.executable
