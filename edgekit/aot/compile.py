"""Compile an imported model to the contents of its C tree: the part that needs TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.aot.arena import plan_arena
from edgekit.aot.budget import check_budget
from edgekit.aot.choose import Choice, choose_kernels, ways_of
from edgekit.aot.generators import generators, is_portable, portable_generators
from edgekit.aot.in_c import program_in_c
from edgekit.aot.job import TreeJob, WrittenTree
from edgekit.aot.kernel import Generator, Library, TakesRegions, UsesLibrary
from edgekit.aot.lower import lower
from edgekit.aot.program import Program
from edgekit.aot.report import report_of
from edgekit.aot.tree import Origin, TreePlan
from edgekit.aot.write import write_tree
from edgekit.aot.write_project import include_folders, library_sources
from edgekit.base.events import Events
from edgekit.base.wording import counted, size
from edgekit.compiler.phases import Dump, no_dump
from edgekit.models.model import Model


@dataclass(frozen=True)
class Compiled:
    plan: TreePlan
    choices: tuple[Choice, ...]


def compile_tree(
    model: Model, job: TreeJob, offers: Sequence[Generator], dump: Dump = no_dump
) -> Compiled:
    """Compile the model with the cheapest kernels of all generators."""
    whole = program_in_c(job.name, model, lower(model.module, dump))
    program = whole
    for offer in offers:
        if isinstance(offer, TakesRegions):
            program = offer.with_regions(program)
    choices = choose_kernels(program, job.cpu, offers, job.ways)
    kernels = [choice.kernel for choice in choices]
    users = [offer for offer in offers if isinstance(offer, UsesLibrary)]
    libraries = tuple(library for user in users for library in user.libraries(kernels))
    plan = planned(program, choices, job.origin, libraries)
    if not all(is_portable(choice.kernel) for choice in choices):
        portable = choose_kernels(whole, job.cpu, portable_generators())
        plan = replace(plan, host=planned(whole, portable, job.origin))
    return Compiled(plan, choices)


def compile_to_tree(
    model: Model,
    job: TreeJob,
    libraries: Sequence[Generator],
    scratch: Path,
    dump: Dump,
    events: Events,
) -> WrittenTree:
    """Run a whole job: write C into a folder of the scratch folder, unless it would not fit.

    `libraries` are generators of third-party libraries that may be used.
    """
    with events.stage("write the model in C") as stage:
        offers = generators(libraries)
        compiled = compile_tree(model, job, offers, dump)
        plan = compiled.plan
        report = report_of(plan, compiled.choices)
        check_budget(report, job, is_float=_is_float(plan.program))
        folder = scratch / "c"
        write_tree(plan, folder)
        stage.result = (
            f"{counted(len(report.steps), 'step')}, an arena of {size(report.arena_bytes)}"
        )
    if report.arena_note:
        events.note(report.arena_note)
    return WrittenTree(
        folder=folder,
        origin=job.origin,
        inputs=model.inputs,
        outputs=model.outputs,
        sources=(f"{plan.name}.c", *library_sources(plan)),
        includes=(".", *include_folders(plan)),
        report=report,
        ways=ways_of(plan.program, job.cpu, offers, compiled.choices) if job.with_ways else (),
    )


def _is_float(program: Program) -> bool:
    """Return whether most of the program's operands are floats."""
    floats = sum(buffer.bytes for buffer in program.buffers if buffer.dtype == "float32")
    return 2 * floats > sum(buffer.bytes for buffer in program.buffers)


def planned(
    program: Program,
    choices: Sequence[Choice],
    origin: Origin,
    libraries: tuple[Library, ...] = (),
) -> TreePlan:
    kernels = tuple(choice.kernel for choice in choices)
    return TreePlan(origin, program, kernels, plan_arena(program, kernels), libraries)
