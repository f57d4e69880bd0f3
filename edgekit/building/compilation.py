"""Runs the part of a build that needs TVM: imports a model and compiles it.

`compiling_in_process` compiles in this process. `compile_process.compiling_in_child` does it in a
child process, which may be interrupted at any moment and may crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from edgekit.base.events import Events
from edgekit.base.tensors import TensorSpec
from edgekit.base.tvm_compat import load_tvm
from edgekit.building.product import Compiled, CompileJob
from edgekit.models.model import Model, import_model


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


class Compilation(Protocol):
    """A job under way. Call `imported` first."""

    def imported(self) -> ImportedModel: ...

    def compiled(self) -> Compiled: ...


Compiling: TypeAlias = "Callable[[CompileJob, Events], AbstractContextManager[Compilation]]"
"""What begins a compilation, which ends with the block."""


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

    def compiled(self) -> Compiled:
        assert self._model is not None
        return self._job.compile(self._model, self._events)


@contextmanager
def compiling_in_process(job: CompileJob, events: Events) -> Iterator[Compilation]:
    yield InProcessCompilation(job, events)
