"""Compiles in a child process.

LLVM ends its process when a disk is full or an instruction can't be selected, and a long phase
of the compiler does not react to Ctrl-C. With a child process the first is an ordinary error, and
Ctrl-C kills the child.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import edgekit.base.errors
from edgekit.base.children import LastLines, Process, start_module
from edgekit.base.errors import BuildError, EdgekitError
from edgekit.base.events import Event, Events
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.limits import limit_named_in
from edgekit.building.compilation import Compilation, Failure, ImportedModel
from edgekit.building.product import Compiled, CompileJob
from edgekit.cross.tools import disk_full, disk_full_error

_KEPT_LINES = 20
_SECONDS_TO_DIE = 10


class _WorkerTraceback(Exception):
    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ChildCompilation:
    def __init__(self, process: Process, job: CompileJob, events: Events) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._job = job
        self._events = events
        self._messages = process.stdout
        self._said = LastLines(process.stderr, _KEPT_LINES)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        assert self._process.stdin is not None
        try:
            with self._process.stdin as stream:
                pickle.dump(self._job, stream)
        except BrokenPipeError as error:
            raise self._died() from error

    def imported(self) -> ImportedModel:
        model = self._next()
        assert isinstance(model, ImportedModel)
        return model

    def compiled(self) -> Compiled:
        compiled = self._next()
        assert isinstance(compiled, Compiled)
        for line in self._said:
            self._events.note(line)
        return compiled

    def end(self) -> None:
        """Kill the process and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._said.wait(_SECONDS_TO_DIE)
        self._messages.close()

    def _next(self) -> Any:
        """Return the next message that is not an event, and pass events on."""
        while True:
            try:
                message = pickle.load(self._messages)
            except (EOFError, pickle.UnpicklingError) as error:
                raise self._died() from error
            if isinstance(message, Failure):
                raise error_of(message) from _WorkerTraceback(message.traceback)
            if not isinstance(message, Event):
                return message
            self._events.send(message)

    def _died(self) -> EdgekitError:
        code = self._process.wait()
        self._said.wait(_SECONDS_TO_DIE)
        lines = list(self._said)
        if disk_full("\n".join(lines)):
            return disk_full_error("compile", self._job.scratch)
        limit = limit_named_in("\n".join(lines))
        if limit is not None:
            return limit
        how = f"ended with status {code}" if code >= 0 else f"was killed by {_name_of(-code)}"
        killed = code == -signal.SIGKILL
        return BuildError(
            f"the compiler {how}: {lines[-1] if lines else 'it said nothing'}",
            hint="most likely memory ran out; free some, or build on a larger machine"
            if killed
            else "this is a fault in TVM or LLVM; report it with the model",
            details=tuple(lines),
        )


@contextmanager
def compiling_in_child(job: CompileJob, events: Events) -> Iterator[Compilation]:
    """Compile in a child process, which ends with the block in any case."""
    job = replace(
        job,
        source=replace(job.source, path=job.source.path.absolute()),
        dump_ir=None if job.dump_ir is None else job.dump_ir.absolute(),
    )
    with ExitStack() as ending:
        with interrupts_deferred():
            compilation = ChildCompilation(
                start_module(["edgekit.building.compile_worker"]), job, events
            )
            ending.callback(compilation.end)
        compilation.start()
        yield compilation


def error_of(failure: Failure) -> EdgekitError:
    if not failure.kind:
        return EdgekitError(
            f"this is a bug in edgekit: {failure.message}",
            hint="run the same command with --debug and report it with the traceback",
        )
    kind: type[EdgekitError] = getattr(edgekit.base.errors, failure.kind)
    return kind(failure.message, hint=failure.hint, details=failure.details)


def _name_of(number: int) -> str:
    has_name = number in signal.valid_signals()
    return signal.Signals(number).name if has_name else f"signal {number}"
