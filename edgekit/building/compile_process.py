"""Compiles in a child process.

LLVM ends its process when a disk is full or an instruction can't be selected, and a long phase
of the compiler does not react to Ctrl-C. With a child process the first is an ordinary error, and
Ctrl-C kills the child.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from edgekit.base.child import Child, ChildGone
from edgekit.base.errors import BuildError, EdgekitError
from edgekit.base.events import Event, Events
from edgekit.base.limits import limit_named_in
from edgekit.base.signals import signal_meaning
from edgekit.building.compilation import Compilation, ImportedModel
from edgekit.building.product import Compiled, CompileJob
from edgekit.cross.tools import disk_full, disk_full_error

_SHOWN_LINES = 20


class ChildCompilation:
    def __init__(self, child: Child, job: CompileJob, events: Events) -> None:
        self._child = child
        self._job = job
        self._events = events
        try:
            child.send(job)
        except ChildGone as gone:
            raise self._died(gone) from gone

    def imported(self) -> ImportedModel:
        model = self._next()
        assert isinstance(model, ImportedModel)
        return model

    def compiled(self) -> Compiled:
        compiled = self._next()
        assert isinstance(compiled, Compiled)
        for line in self._child.lines[-_SHOWN_LINES:]:
            self._events.note(line)
        return compiled

    def _next(self) -> Any:
        """Return the next message that is not an event, and pass events on."""
        try:
            while isinstance(message := self._child.receive(), Event):
                self._events.send(message)
        except ChildGone as gone:
            raise self._died(gone) from gone
        return message

    def _died(self, gone: ChildGone) -> EdgekitError:
        lines = gone.lines[-_SHOWN_LINES:]
        if disk_full("\n".join(lines)):
            return disk_full_error("compile", self._job.scratch)
        limit = limit_named_in("\n".join(lines))
        if limit is not None:
            return limit
        code = gone.code or 0
        how = f"was killed by {signal_meaning(-code)}" if code < 0 else f"ended with status {code}"
        return BuildError(
            f"the compiler {how}: {lines[-1] if lines else 'it said nothing'}",
            hint="most likely memory ran out; free some, or build on a larger machine"
            if code == -signal.SIGKILL
            else "this is a fault in TVM or LLVM; report it with the model",
            details=lines,
        )


@contextmanager
def compiling_in_child(job: CompileJob, events: Events) -> Iterator[Compilation]:
    """Compile in a child process, which ends with the block in any case."""
    job = replace(
        job,
        source=replace(job.source, path=job.source.path.absolute()),
        dump_ir=None if job.dump_ir is None else job.dump_ir.absolute(),
    )
    with Child("edgekit.building.compile_worker") as child:
        yield ChildCompilation(child, job, events)
