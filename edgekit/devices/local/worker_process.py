"""A child process that runs a model: its start, its frames, and the explanation of its death."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from edgekit.base.arrays import Array
from edgekit.base.children import LastLines, Process, TimeoutExpired, start_module
from edgekit.base.errors import DeviceError
from edgekit.base.interrupts import interrupts_deferred
from edgekit.devices.local.crashes import failure_hint, signal_hint, signal_meaning
from edgekit.devices.local.frames import Frame, FrameError, encode_frame, read_frame

_KEPT_STDERR_LINES = 200
_SHOWN_STDERR_LINES = 12
_SECONDS_TO_DIE = 10


class WorkerProcess:
    """Exchanges frames with one child. Use it through `started_worker`, which always ends it."""

    def __init__(self, process: Process, place: str, timeout: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._place = place
        self._timeout = timeout
        self._requests = process.stdin.fileno()
        self._responses = process.stdout.fileno()
        os.set_blocking(self._requests, False)
        self._stderr = LastLines(process.stderr, _KEPT_STDERR_LINES)

    def ask(
        self, doing: str, message: Mapping[str, object], arrays: Sequence[Array] = ()
    ) -> Iterator[Frame]:
        """Send a request and yield its progress frames and last its answer.

        `doing` ends the sentence "the model crashed while …".
        """
        try:
            self._send(doing, message, arrays)
            while True:
                frame = self._receive(doing)
                if "error" in frame.message:
                    raise self._refused(doing, str(frame.message["error"]))
                yield frame
                if "progress" not in frame.message:
                    return
        except (EOFError, BrokenPipeError) as error:
            raise self._died(doing) from error

    def end(self) -> None:
        """Kill the child and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._stderr.wait(_SECONDS_TO_DIE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _send(self, doing: str, message: Mapping[str, object], arrays: Sequence[Array]) -> None:
        deadline = time.monotonic() + self._timeout
        for piece in encode_frame(message, arrays):
            rest = memoryview(piece)
            while rest:
                self._wait_for(self._requests, select.POLLOUT, doing, deadline)
                rest = rest[os.write(self._requests, rest) :]

    def _receive(self, doing: str) -> Frame:
        deadline = time.monotonic() + self._timeout
        try:
            return read_frame(lambda buffer: self._fill(buffer, doing, deadline))
        except FrameError as error:
            raise DeviceError(
                f"the process of the model on {self._place} sent an invalid message while "
                f"{doing}: {error}",
                hint="the model may have overwritten memory; build it again",
                details=self._last_words(),
            ) from error

    def _fill(self, buffer: memoryview, doing: str, deadline: float) -> None:
        done = 0
        while done < len(buffer):
            self._wait_for(self._responses, select.POLLIN, doing, deadline)
            count = os.readv(self._responses, [buffer[done:]])
            if count == 0:
                raise EOFError
            done += count

    def _wait_for(self, descriptor: int, event: int, doing: str, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise DeviceError(
                f"the model on {self._place} gave no sign of life for {self._timeout:g} s "
                f"while {doing}",
                hint="give it longer with --timeout, or check whether the machine is overloaded",
                details=self._last_words(),
            )

    def _refused(self, doing: str, reason: str) -> DeviceError:
        first, *rest = reason.strip().splitlines() or ["no reason given"]
        return DeviceError(
            f"the model failed on {self._place} while {doing}: {first}",
            hint=failure_hint(first),
            details=(*rest[:_SHOWN_STDERR_LINES], *self._last_words()),
        )

    def _died(self, doing: str) -> DeviceError:
        try:
            code = self._process.wait(timeout=_SECONDS_TO_DIE)
        except TimeoutExpired:
            return DeviceError(
                f"the model's process on {self._place} closed its connection while {doing}",
                hint="the model may have closed file descriptors that are not its own",
                details=self._last_words(),
            )
        self._stderr.wait(_SECONDS_TO_DIE)
        if code >= 0:
            return DeviceError(
                f"the model ended its process on {self._place} with exit code {code} while {doing}",
                hint="the last lines that it wrote say more, if it wrote any",
                details=self._last_words(),
            )
        return DeviceError(
            f"the model crashed on {self._place} while {doing}: {signal_meaning(-code)}",
            hint=signal_hint(-code, "local"),
            details=self._last_words(),
        )

    def _last_words(self) -> tuple[str, ...]:
        lines = [line for line in self._stderr if not _is_python_frame(line)]
        return tuple(lines[-_SHOWN_STDERR_LINES:])


@contextmanager
def started_worker(
    arguments: Sequence[str], environment: Mapping[str, str], place: str, timeout: float
) -> Iterator[WorkerProcess]:
    """Run `python -m ARGUMENTS` until the block ends in any way, Ctrl-C included."""
    with ExitStack() as ending:
        with interrupts_deferred():
            process = start_module(arguments, environment)
            worker = WorkerProcess(process, place, timeout)
            ending.callback(worker.end)
        yield worker


def _is_python_frame(line: str) -> bool:
    """Tell whether a line shows a frame of the interpreter in the runtime's native backtrace, which
    is never the cause."""
    return line.startswith('  File "') and any(
        part in line
        for part in ("/Python/", "Python/", "Objects/", "Modules/", "<unknown>", "/Include/")
    )
