"""Compile a model with parts of it on libraries: partition it, then compile the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.backends.base import Decision, Region
from edgekit.backends.leftovers import with_leftovers
from edgekit.base.events import SILENT, Events
from edgekit.base.own_backends import own_backends
from edgekit.base.tvm_compat import load_tvm, shared_constants
from edgekit.base.wording import counted
from edgekit.compiler.compile import Compiled, Form, ForMachine, compile_module, fused
from edgekit.compiler.phases import Dump, dumper, no_dump, run_phase, run_phases
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.models.model import Model
from edgekit.profiles.cpu import Target

if TYPE_CHECKING:
    from edgekit.backends.partition import Partition, Selection


_KEPT = frozenset({"relax.dequantize"})
"""Operators that a backend that computes in integers looks for."""


@dataclass(frozen=True)
class OffloadedModel(Compiled):
    """A compiled model and the regions that libraries run."""

    regions: tuple[Region, ...]
    """The regions of backends, which must be linked into the library."""
    decisions: tuple[Decision, ...]
    """The decision for each operator; empty without backends."""


def compile_model(
    model: Model,
    target: Target,
    *,
    offload: Selection | None = None,
    regions: tuple[Region, ...] = (),
    linked: bool = False,
    with_runtime: bool = False,
    choices: Choices = NO_CHOICES,
    dump_ir: Path | None = None,
    events: Events = SILENT,
) -> OffloadedModel:
    """Partition a model if backends are selected, and compile the rest for `target`.

    With `offload` the code runs only after it is linked with the regions of its backends. `regions`
    are those that the module already calls. Code that will be `linked` is a program without a
    runtime where the model has that form, unless it is asked for `with_runtime`.
    """
    load_tvm()
    from edgekit.aot.native.compile import program_of
    from edgekit.compiler.passes.loops import has_loops, written_out
    from edgekit.compiler.steps import steps_for_machine

    dump = dumper(dump_ir)
    dump("imported", model.module)
    module = model.module
    decisions: tuple[Decision, ...] = ()
    if offload is not None:
        with events.stage("partition") as stage:
            partitioned = partition_model(model, offload, dump)
            regions = partitioned.regions
            if regions:
                module = partitioned.module  # else the original, without the libraries' rewrites
            decisions = partitioned.decisions
            stage.result = _coverage(decisions, len(regions))
    external = tuple(region.symbol for region in regions)

    own = own_backends()
    on_gpu = frozenset(
        region.symbol
        for region in regions
        if target.gpu is not None
        and target.gpu.language == "cuda"
        and region.backend in own
        and own[region.backend].tensors == "gpu"
    )
    may_be_program = linked and not with_runtime

    def form_of(scheduled: Any) -> Form:
        form = program_of(model, scheduled, target.gpu, on_gpu) if may_be_program else None
        if form is None and (has_loops(scheduled) or target.gpu is not None):
            raise _NeedsMachineError
        return form or ForMachine(external, linked, steps_for_machine(scheduled))

    def compiled_from(module: Any, target: Target) -> Compiled:
        return compile_module(module, target, form_of, choices=choices, dump=dump, events=events)

    on_cpu = replace(target, gpu=None)
    if not may_be_program:
        target = on_cpu
    # Libraries would hold their weights once for each size.
    is_sized = may_be_program and not regions and target.gpu is None
    try:
        if is_sized and model.by_size is not None:
            with shared_constants():
                compiled = compiled_from(model.by_size(), target)
        else:
            compiled = compiled_from(module if may_be_program else written_out(module), target)
    except _NeedsMachineError:
        target = on_cpu
        compiled = compiled_from(written_out(module), target)
    return OffloadedModel(**vars(compiled), regions=regions, decisions=decisions)


class _NeedsMachineError(Exception):
    """The model needs TVM's virtual machine, which repeats no function and runs on the CPU."""


def partition_model(model: Model, offload: Selection, dump: Dump = no_dump) -> Partition:
    """Assign operators to backends: first those that match batch norm, then all others."""
    from edgekit.backends.partition import check_forced, partition

    load_tvm()
    from edgekit.compiler.pipeline import for_libraries

    early, late = offload.split()
    *before, fold = for_libraries(kept=_KEPT)
    module = run_phases(before, model.module)
    first: Partition | None = None
    if early.backends:
        first = partition(module, early)
        module = first.module
    module = run_phase(fold, module)
    dump("folded", module)
    last = partition(module, late)
    dump("partitioned", last.module)
    whole = last if first is None else _both(first, last)
    check_forced(offload.force, whole.decisions)
    return with_leftovers(whole, model, offload)


def _both(early: Partition, late: Partition) -> Partition:
    """Combine the decisions of both passes: the second decides what the first left open."""
    from edgekit.backends.partition import NO_RULE

    decided = {v: d for v, d in early.decision_of.items() if d.backend is not None}
    declined = {
        d.node: d.reason
        for d in early.decisions
        if d.backend is None and d.node and d.reason != NO_RULE
    }
    completed = {
        variable: replace(decision, reason=declined[decision.node])
        if decision.reason == NO_RULE and decision.node in declined
        else decision
        for variable, decision in late.decision_of.items()
    }
    decision_of = {**decided, **completed}
    return replace(
        late,
        regions=(*early.regions, *late.regions),
        decisions=tuple(decision_of.values()),
        candidates=(*early.candidates, *late.candidates),
        decision_of=decision_of,
    )


def _coverage(decisions: Sequence[Decision], regions: int) -> str:
    offloaded = [decision for decision in decisions if decision.backend is not None]
    return (
        f"{len(offloaded)} of {counted(len(decisions), 'operator')} in {counted(regions, 'region')}"
    )


def fused_for(model: Model, target: Any, offload: Selection | None = None) -> Any:
    """Compile a model as far as its kernels get their schedules."""
    module = model.module
    if offload is not None:
        partition = partition_model(model, offload)
        module = partition.module if partition.regions else module
    return fused(module, target)
