"""A child process that may crash or hang at any moment: both ends of its pipes.

The parent has a `Child`, the module that it runs a `Channel`. Messages are pickles: both ends are
this edgekit, and no other process has the pipes. A pair that sends its own form uses the bytes.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from edgekit.base.children import LastLines, Process, start_module
from edgekit.base.failure import Failure, raise_failure
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.parent_process import end_with_parent
from edgekit.base.signals import signal_meaning

_HEADER = struct.Struct("<Q")
_MOST_LINES = 200
_SECONDS_TO_DIE = 10
_LOWEST_PRIORITY = 19
_LOOK_SECONDS = 1.0
"""The time between looks at the clock while a process is silent."""
_LOOKS_A_SECOND = 50


class ChildGone(Exception):
    """The process ended, or was killed because it was silent. The next message starts a new one."""

    def __init__(
        self,
        reason: str,
        *,
        silent: bool = False,
        code: int | None = None,
        lines: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.silent = silent
        self.code = code
        """The exit code, or minus the signal; None if the process did not end by itself."""
        self.lines = lines
        """The last lines of its error output."""


class Child:
    """A child process that starts with its first message and is set up by it.

    As a context manager it is closed with its block.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        setup: object = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._arguments = arguments
        self._setup = setup
        self._environment = environment
        self._process: Process | None = None
        self._errors: LastLines | None = None
        self._closed = False

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        return None if self._process is None else self._process.pid

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines of the error output of the process, which may have ended."""
        return tuple(self._errors or ())

    def start(self) -> None:
        """Start the process if it is not running."""
        if self._process is None and not self._closed:
            self._start()
        if self._closed:  # another thread may close it while it starts
            self.end()
            raise ChildGone("it was closed")

    def send(self, message: object) -> None:
        """Send a message to the process, which starts if it is not running."""
        self.start()
        self.write(_framed(message))

    def receive(self, seconds: float = math.inf) -> Any:
        """Return the next answer; raise ChildGone if none comes in time, or the error it is."""
        deadline = self.deadline(seconds)
        header = bytearray(_HEADER.size)
        self.fill(header, deadline)
        data = bytearray(*_HEADER.unpack(header))
        self.fill(data, deadline)
        answer = pickle.loads(data)  # from this very edgekit
        if isinstance(answer, Failure):
            raise_failure(answer)
        return answer

    def ask(self, message: object, seconds: float = math.inf) -> Any:
        self.send(message)
        return self.receive(seconds)

    def deadline(self, seconds: float) -> float:
        """Return the time after so many seconds, for `write` and `fill`."""
        return self._now() + seconds

    def write(self, pieces: Iterable[bytes | memoryview], deadline: float = math.inf) -> None:
        """Write bytes; raise ChildGone if the process does not take them in time."""
        process = self._running()
        assert process.stdin is not None
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                try:
                    self._wait(process.stdin.fileno(), select.POLLOUT, deadline)
                    rest = rest[os.write(process.stdin.fileno(), rest) :]
                except (OSError, ValueError) as error:  # ended, or closed by another thread
                    raise self._gone(process) from error

    def fill(self, buffer: bytearray | memoryview, deadline: float = math.inf) -> None:
        """Fill a buffer with the bytes that come; raise ChildGone if they don't come in time."""
        process = self._running()
        assert process.stdout is not None
        rest = memoryview(buffer)
        while rest:
            try:
                self._wait(process.stdout.fileno(), select.POLLIN, deadline)
                count = os.readv(process.stdout.fileno(), [rest])
            except (OSError, ValueError) as error:
                raise self._gone(process) from error
            if not count:
                raise self._gone(process)
            rest = rest[count:]

    def end(self) -> None:
        """Kill the process and its group. Any thread may call this."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:  # no other group has its number before it is waited for
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._errors is not None:
            self._errors.wait(_SECONDS_TO_DIE)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()

    def close(self) -> None:
        """Kill the process and never start it again."""
        self._closed = True
        self.end()

    def _start(self) -> None:
        with interrupts_deferred():
            arguments = [self._module, *self._arguments]
            process = start_module(arguments, self._environment)
            self._process = process
        assert process.stderr is not None
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._errors = LastLines(process.stderr, _MOST_LINES)
        if self._setup is not None:
            self.write(_framed(self._setup))

    def _now(self) -> float:
        return time.monotonic()

    def _running(self) -> Process:
        if self._process is None:
            raise ChildGone("it was ended", lines=self.lines)
        return self._process

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            left = max(deadline - self._now(), 0)
            if poll.poll(min(left, _LOOK_SECONDS) * 1000):
                return
            if left <= _LOOK_SECONDS:
                self.end()
                raise ChildGone("it did not answer in time", silent=True, lines=self.lines)

    def _gone(self, process: Process) -> ChildGone:
        has_ended = _ends(process)
        self.end()
        code, lines = process.returncode if has_ended else None, self.lines
        if code is not None and code < 0:
            return ChildGone(signal_meaning(-code), code=code, lines=lines)
        reason = lines[-1][:500] if lines else f"it ended with {code}"
        return ChildGone(reason, code=code, lines=lines)


def _framed(message: object) -> tuple[bytes, bytes]:
    data = pickle.dumps(message)
    return _HEADER.pack(len(data)), data


def _ends(process: Process) -> bool:
    """Wait for the end of a process whose pipe is closed, and leave its number to its group."""
    for _ in range(_SECONDS_TO_DIE * _LOOKS_A_SECOND):
        try:
            how = os.WEXITED | os.WNOWAIT | os.WNOHANG
            if os.waitid(os.P_PID, process.pid, how) is not None:
                return True
        except ChildProcessError:  # another thread has waited for it
            return True
        time.sleep(1 / _LOOKS_A_SECOND)
    return False


def yield_to_others() -> None:
    """Give this process the lowest CPU priority."""
    os.nice(_LOWEST_PRIORITY)


class Channel:
    """The connection of a child process to its parent. The process ends with its parent.

    Its standard output is joined to its error output, so that only messages are in the pipe.
    """

    def __init__(self) -> None:
        end_with_parent()
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)
        self._messages = os.fdopen(os.dup(0), "rb", buffering=0)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._sending = threading.Lock()

    def waiting(self, seconds: float | None) -> bool:
        """Return whether a message arrives in time."""
        return bool(select.select([self._messages], [], [], seconds)[0])

    def next(self) -> Any:
        """Return the next message, or end the process if there will be no more."""
        header = bytearray(_HEADER.size)
        self.fill(header)
        data = bytearray(*_HEADER.unpack(header))
        self.fill(data)
        return pickle.loads(data)  # from this very edgekit

    def send(self, answer: object) -> None:
        """Send a message; a `Failure` is raised by the parent's `receive`."""
        self.write(_framed(answer))

    def write(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Write bytes, all of them before those of another thread."""
        with self._sending:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[self._answers.write(rest) or 0 :]

    def fill(self, buffer: bytearray | memoryview) -> None:
        """Fill a buffer with the bytes that come, or end the process if no more come."""
        rest = memoryview(buffer)
        while rest:
            count = self._messages.readinto(rest)
            if not count:
                self.end()
            rest = rest[count:]

    def end(self) -> NoReturn:
        """End the process without the teardown of its libraries, which may take long."""
        sys.stderr.flush()
        os._exit(0)
