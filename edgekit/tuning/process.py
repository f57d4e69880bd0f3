"""The search's end of tuning/worker.py, which is started again after a crash."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from edgekit.base.children import LastLines, Process, start_module
from edgekit.base.errors import BuildError
from edgekit.base.interrupts import interrupts_deferred
from edgekit.building.compilation import Failure
from edgekit.building.compile_process import error_of
from edgekit.tuning.messages import Kernel, Order, Trial, TrialOrder

_MOST_LINES = 20
_SECONDS_TO_DIE = 10


class TuningProcess:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._process: Process | None = None
        self._last_lines: LastLines | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        return None if self._process is None else self._process.pid

    def kernels(self) -> tuple[Kernel, ...]:
        """Start the process with the model and return the model's kernels."""
        with interrupts_deferred():
            self._process = start_module(["edgekit.tuning.worker"])
        assert self._process.stderr is not None
        self._last_lines = LastLines(self._process.stderr, _MOST_LINES)
        kernels: tuple[Kernel, ...] = self._ask(self._order)
        return kernels

    def make(self, order: TrialOrder) -> Trial:
        """Make a program; raise BuildError if it can't be compiled."""
        if self._process is None:
            self.kernels()
        trial: Trial = self._ask(order)
        return trial

    def end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        if self._last_lines is not None:
            self._last_lines.wait(_SECONDS_TO_DIE)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # an unsent message
                stream.close()

    def _ask(self, message: object) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            lines = list(self._last_lines or ())
            self.end()
            raise BuildError(
                f"the compiler ended early: {lines[-1] if lines else 'it said nothing'}",
                hint="this is a fault in TVM or LLVM; report it with the model",
            ) from error
        if isinstance(answer, Failure):
            if answer.kind:
                raise error_of(answer)
            raise BuildError(
                f"a candidate can't be compiled: {answer.message}",
                hint="run again with --debug and report it",
                details=tuple(answer.traceback.splitlines()),
            )
        return answer


@contextmanager
def tuning_process(order: Order) -> Iterator[TuningProcess]:
    """Run a tuning process for the duration of the block."""
    process = TuningProcess(order)
    try:
        yield process
    finally:
        process.end()
