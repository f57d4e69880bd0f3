"""Compiles models on a cluster's workers, as builds do in a child process of this host.

The board's own compiler and linker, and the oracle, stay on this host: a worker needs TVM and the
packages that read the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from edgekit.base.errors import BuildError
from edgekit.base.events import SILENT, Events
from edgekit.building.compilation import Compilation, Compiling, ImportedModel
from edgekit.building.compile_process import compiling_in_child
from edgekit.building.product import Compiled, CompileJob
from edgekit.cluster.cluster import Cluster, TaskKills
from edgekit.cluster.task import Task


@dataclass(frozen=True)
class CompileModel(Task[tuple[ImportedModel, Compiled]]):
    """The part of a build that needs TVM, on a worker."""

    job: CompileJob

    def run(self) -> tuple[ImportedModel, Compiled]:
        with compiling_in_child(self.job, SILENT) as compilation:
            return compilation.imported(), compilation.compiled()


class ClusterCompilation:
    """A job that a worker has done."""

    def __init__(self, imported: ImportedModel, compiled: Compiled) -> None:
        self._imported = imported
        self._compiled = compiled

    def imported(self) -> ImportedModel:
        return self._imported

    def compiled(self) -> Compiled:
        return self._compiled


def compiling_on(
    cluster: Callable[[], AbstractContextManager[Cluster]],
) -> Compiling:
    """Return what compiles a build's job on a cluster, which is entered for each job."""

    @contextmanager
    def compiling(job: CompileJob, events: Events) -> Iterator[Compilation]:
        if job.dump_ir is not None:
            with compiling_in_child(job, events) as here:
                yield here
            return
        source = job.source
        files = tuple(path.absolute() for path in source.files or (source.path,))
        job = replace(job, source=replace(source, path=source.path.absolute(), files=files))
        with cluster() as workers, events.stage("compile on the cluster"):
            try:
                imported, compiled = workers.run(
                    CompileModel(job),
                    {"scratch": job.scratch},
                    {"model": (job.source.path.parent, files)},
                )
            except TaskKills as error:
                raise BuildError(
                    f"two workers of the cluster ended while they compiled {source.name}",
                    hint="most likely their memory ran out: build on a larger machine",
                ) from error
        yield ClusterCompilation(imported, compiled)

    return compiling
