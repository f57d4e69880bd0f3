"""Compiles the batches of a search on the workers of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgekit.base.child import Child
from edgekit.cluster.cluster import Cluster, ClusterClosed, TaskKills
from edgekit.cluster.task import Task
from edgekit.cross.toolchain import find_compiler
from edgekit.profiles.toolchain import Toolchain
from edgekit.tuning.batches import OWN
from edgekit.tuning.builders import LocalBuilders
from edgekit.tuning.messages import BatchOrder, BuilderSetup, BuildFailure, BuiltBatch


@dataclass(frozen=True)
class Bench:
    """What a worker needs to compile for a board."""

    module: str
    """The module of the processes that compile."""
    setup: BuilderSetup
    toolchain: Toolchain

    def start(self) -> Child:
        """Return a process of this host, with this host's compiler."""
        linker = replace(self.setup.linker, compiler=find_compiler(self.toolchain))
        return Child(self.module, setup=replace(self.setup, linker=linker, yields=False))


@dataclass(frozen=True)
class CompileBatch(Task[BuiltBatch | BuildFailure]):
    """One order of a search, on a worker."""

    bench: Bench
    order: BatchOrder

    def run(self) -> BuiltBatch | BuildFailure:
        return _processes.of(self.bench).ask(self.order)


class ClusterBuilders:
    """The workers of a cluster, as builders."""

    def __init__(
        self, cluster: Cluster, task: Callable[[BatchOrder], Task[BuiltBatch | BuildFailure]]
    ) -> None:
        self._cluster = cluster
        self._task = task

    @property
    def width(self) -> int:
        return self._cluster.width

    def ask(self, order: BatchOrder) -> BuiltBatch | BuildFailure:
        folders = {"folder": order.folder, "inputs": order.inputs}
        try:
            return self._cluster.run(self._task(order), folders)
        except TaskKills as error:
            return BuildFailure(OWN, "compile", str(error))
        except ClusterClosed:
            return BuildFailure(OWN, "device", "the search has ended")

    def close(self) -> None:
        self._cluster.close()


class _Processes:
    """The processes of a worker, for the board of the last task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bench: Bench | None = None
        self._builders: LocalBuilders | None = None

    def of(self, bench: Bench) -> LocalBuilders:
        with self._lock:
            if self._builders is None or bench != self._bench:
                if self._builders is not None:
                    self._builders.close()
                self._bench, self._builders = bench, LocalBuilders(bench.start, 1)
            return self._builders


_processes = _Processes()
