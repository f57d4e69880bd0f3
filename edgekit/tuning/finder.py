"""The process that finds a model's kernels and proposes traces, seen from the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import BuildError
from edgekit.base.events import Events
from edgekit.tuning.messages import FindTasks, Learn, Propose, Task

_FIND_SECONDS = 1800.0
_PROPOSAL_SECONDS = 120.0


class KernelFinder:
    """A process with one model. If it ends, there are no more traces."""

    def __init__(self, child: Child, tasks: tuple[Task, ...], events: Events) -> None:
        self.tasks = tasks
        self._child = child
        self._events = events
        self._is_gone = False

    def propose(self, key: str, count: int) -> tuple[str, ...]:
        """Return up to `count` traces of a kernel that were not proposed before."""
        if self._is_gone:
            return ()
        try:
            found: tuple[str, ...] = self._child.ask(Propose(key, count), _PROPOSAL_SECONDS)
        except ChildGone as gone:
            self._lose(gone)
            return ()
        return found

    def learn(self, key: str, measured: Sequence[tuple[str, float]]) -> None:
        """Tell the traces' microseconds, which decide what is proposed next."""
        if not measured or self._is_gone:
            return
        try:
            self._child.send(Learn(key, tuple(measured)))
        except ChildGone as gone:
            self._lose(gone)

    def _lose(self, gone: ChildGone) -> None:
        self._is_gone = True
        self._events.warn(f"MetaSchedule failed, and proposes nothing more: {gone.reason}")


@contextmanager
def kernels_found(order: FindTasks, events: Events) -> Iterator[KernelFinder]:
    """Start the process and find the kernels."""
    with Child("edgekit.tuning.proposer", setup=order) as child:
        try:
            child.start()
            tasks = child.receive(_FIND_SECONDS)
        except ChildGone as gone:
            raise BuildError(
                f"the compiler ended early: {gone.reason}",
                hint="this is a fault in TVM or LLVM; report it with the model",
            ) from gone
        yield KernelFinder(child, tasks, events)
