"""Compiles a model file to object files: the part of a build that needs TVM.

`compiling_in_process` compiles in this process. `compile_process.compiling_in_child` does it in a
child process, which may be interrupted at any moment and may crash.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgekit.aot.job import TreeJob, WrittenTree
from edgekit.backends.base import Backend, Decision, Options
from edgekit.backends.codegen import RegionFiles, write_regions
from edgekit.backends.plan import OffloadPlan, selection_of
from edgekit.base.errors import EdgekitError
from edgekit.base.events import Events
from edgekit.base.limits import explained_by_limits, reached_limit
from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.compiler.schedules.choices import NO_CHOICES, Choices
from edgekit.cross.library_code import write_index_error, write_mark
from edgekit.cross.link import Objects, export_objects
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.weights import write_weights
from edgekit.models.model import Model, ModelSource, import_model
from edgekit.profiles.cpu import Target

if TYPE_CHECKING:
    from edgekit.backends.offloading import OffloadedModel


@dataclass(frozen=True)
class CompileJob:
    source: ModelSource
    target: Target
    scratch: Path
    """The folder for the object files."""
    dump_ir: Path | None
    offload: OffloadPlan = field(default_factory=OffloadPlan)
    tree: TreeJob | None = None
    """The job of writing C; None if the model becomes a library."""
    choices: Choices = NO_CHOICES


@dataclass(frozen=True)
class ImportedModel:
    """The facts about a model that are known before it is compiled."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    repairs: tuple[str, ...]
    index_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The smallest and largest valid index of each input that holds indices."""
    nan_obstacle: str = ""
    """The reason why the model may lose NaN; empty if it keeps NaN."""


@dataclass(frozen=True)
class CompiledModel:
    """The files that the board's own compiler and linker still need."""

    objects: Objects
    regions: tuple[RegionFiles, ...]
    decisions: tuple[Decision, ...]
    """The backend of each operator; empty without backends."""
    rules: tuple[tuple[str, str], ...]
    """The name of each kernel, and the rule that gave its schedule."""
    choices: tuple[tuple[str, str], ...]
    """The name of each tuned kernel, and its measured choice in words."""


@dataclass(frozen=True)
class Failure:
    """An exception in a form that can be sent to another process."""

    kind: str
    """The name of a class in edgekit.base.errors; empty for any other exception."""
    message: str
    hint: str | None
    details: tuple[str, ...]
    traceback: str


def failure_of(error: Exception) -> Failure:
    """Return the exception that is being handled in a form for another process."""
    trace = traceback.format_exc()
    if isinstance(error, EdgekitError):
        typed: EdgekitError | None = reached_limit(error) or error
    else:
        typed = explained_by_limits(error)
    if typed is not None:
        return Failure(type(typed).__name__, typed.message, typed.hint, typed.details, trace)
    said = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    return Failure("", what, None, (), trace)


class Compilation(Protocol):
    """A job under way. Call `imported` first, then `compiled` or `tree`."""

    def imported(self) -> ImportedModel: ...

    def compiled(self) -> CompiledModel: ...

    def tree(self) -> WrittenTree: ...


class InProcessCompilation:
    def __init__(self, job: CompileJob, events: Events) -> None:
        self._job = job
        self._events = events
        self._model: Model | None = None

    def imported(self) -> ImportedModel:
        with self._events.stage("load TVM"):
            load_tvm()
        from edgekit.compiler.passes.indices import index_ranges
        from edgekit.compiler.passes.nan_paths import nan_obstacle

        model = import_model(self._job.source, self._events)
        self._model = model
        ranges = index_ranges(model.module, [spec.name for spec in model.inputs])
        obstacle = nan_obstacle(model.module)
        return ImportedModel(model.inputs, model.outputs, model.repairs, ranges, obstacle)

    def compiled(self) -> CompiledModel:
        from edgekit.backends.offloading import compile_model

        assert self._model is not None
        plan = self._job.offload
        selection = selection_of(plan) if plan.backends else None
        compiled = compile_model(
            self._model,
            self._job.target,
            offload=selection,
            weights_apart=True,
            choices=self._job.choices,
            dump_ir=self._job.dump_ir,
            events=self._events,
        )
        with self._events.stage("write the object files"):
            return write_objects(
                compiled,
                self._job.target,
                selection.backends if selection else (),
                self._job.scratch,
            )

    def tree(self) -> WrittenTree:
        """Write the model as C. Replaces `compiled` for such jobs."""
        from edgekit.aot.compile import compile_to_tree
        from edgekit.backends.registry import load_kernel_backend
        from edgekit.compiler.phases import dumper

        assert self._model is not None
        assert self._job.tree is not None
        plan, dump = self._job.offload, dumper(self._job.dump_ir)
        libraries = [
            load_kernel_backend(name).generator(plan.options.get(name, {}))
            for name in plan.backends
        ]
        return compile_to_tree(
            self._model, self._job.tree, libraries, self._job.scratch, dump, self._events
        )


def write_objects(
    compiled: OffloadedModel,
    target: Target,
    backends: Sequence[tuple[Backend, Options]],
    scratch: Path,
) -> CompiledModel:
    """Write TVM's objects, the weights and the regions into the scratch folder."""
    objects = export_objects(compiled.executable, target.triple, scratch)
    sources = (*write_weights(compiled.weights, scratch), *write_mark(target, scratch))
    if compiled.checks_indices:
        sources = (*sources, *write_index_error(scratch))
    objects = objects.with_sources(sources, ffi_headers())
    regions = write_regions(compiled.regions, backends, scratch)
    return CompiledModel(objects, regions, compiled.decisions, compiled.rules, compiled.choices)


@contextmanager
def compiling_in_process(job: CompileJob, events: Events) -> Iterator[Compilation]:
    yield InProcessCompilation(job, events)
