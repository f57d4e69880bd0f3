"""A child process of a search, which may crash or hang at any moment: both ends.

Messages are pickles: both ends are this edgekit, and no other process has the pipe.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from edgekit.base.children import LastLines, Process, TimeoutExpired, start_module
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.parent_process import end_with_parent
from edgekit.devices.local.crashes import signal_meaning

_HEADER = struct.Struct("<Q")
_MOST_LINES = 20
_SECONDS_TO_DIE = 10
_LOWEST_PRIORITY = 19
_LOOK_SECONDS = 1.0
"""The time between looks at the clock while a process is silent."""
_BLOCK = 1 << 20


class ChildGone(Exception):
    """The process ended or was killed because it was silent. The next message starts a new one."""

    def __init__(self, reason: str, *, silent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.silent = silent


class Child:
    """A child process that starts with its first message and is set up by it."""

    def __init__(
        self, module: str, setup: object = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._module = module
        self._setup = setup
        self._environment = environment
        self._process: Process | None = None
        self._last_lines: LastLines | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id; None while it is not running."""
        return None if self._process is None else self._process.pid

    def send(self, message: object) -> None:
        self.start()
        self._write(message)

    def start(self) -> None:
        """Start the process if it is not running."""
        if self._process is None and not self._closed:
            self._start()
        if self._closed:  # another thread may close it while it starts
            self.end()
            raise ChildGone("the search is over", silent=False)

    def receive(self, seconds: float) -> Any:
        """Return the next answer, or raise ChildGone if none comes in time."""
        deadline = self._now() + seconds
        (size,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        return pickle.loads(self._read(size, deadline))  # from this very edgekit

    def ask(self, message: object, seconds: float) -> Any:
        self.send(message)
        return self.receive(seconds)

    def end(self) -> None:
        """Kill the process. Any thread may call this."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        if self._last_lines is not None:
            self._last_lines.wait(_SECONDS_TO_DIE)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # an unsent message
                stream.close()

    def close(self) -> None:
        """Kill the process and never start it again."""
        self._closed = True
        self.end()

    def _start(self) -> None:
        with interrupts_deferred():
            self._process = start_module([self._module], self._environment)
        assert self._process.stderr is not None
        self._last_lines = LastLines(self._process.stderr, _MOST_LINES)
        if self._setup is not None:
            self._write(self._setup)

    def _now(self) -> float:
        return time.monotonic()

    def _write(self, message: object) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        data = pickle.dumps(message)
        try:
            process.stdin.write(_HEADER.pack(len(data)) + data)
            process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._gone(process) from error

    def _read(self, size: int, deadline: float) -> bytes:
        process = self._process
        if process is None:
            raise ChildGone("it was ended", silent=False)
        assert process.stdout is not None
        data = bytearray()
        while len(data) < size:
            try:
                descriptor = process.stdout.fileno()
                left = max(deadline - self._now(), 0)
                if not select.select([descriptor], [], [], min(left, _LOOK_SECONDS))[0]:
                    if left > _LOOK_SECONDS:
                        continue
                    self.end()
                    raise ChildGone("it did not answer in time", silent=True)
                block = os.read(descriptor, min(size - len(data), _BLOCK))
            except (OSError, ValueError) as error:
                raise self._gone(process) from error
            if not block:
                raise self._gone(process)
            data += block
        return bytes(data)

    def _gone(self, process: Process) -> ChildGone:
        try:
            code = process.wait(timeout=_SECONDS_TO_DIE)
        except TimeoutExpired:
            code = None
        if self._last_lines is not None:
            self._last_lines.wait(_SECONDS_TO_DIE)
        lines = list(self._last_lines or ())
        self.end()
        if code is not None and code < 0:
            return ChildGone(signal_meaning(-code), silent=False)
        return ChildGone(lines[-1][:500] if lines else f"it ended with {code}", silent=False)


def yield_to_others() -> None:
    """Give this process the lowest CPU priority."""
    os.nice(_LOWEST_PRIORITY)


class Channel:
    """The connection to the search that started this process, which ends with the search."""

    def __init__(self) -> None:
        end_with_parent()
        # Other output on stdout must not mix with the messages.
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._messages = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)

    def waiting(self, seconds: float | None) -> bool:
        """Return whether a message arrives in time."""
        return bool(select.select([self._messages], [], [], seconds)[0])

    def next(self) -> Any:
        """Return the next message, or end the process if there will be no more."""
        (size,) = _HEADER.unpack(self._read(_HEADER.size))
        return pickle.loads(self._read(size))  # from this very edgekit

    def send(self, answer: object) -> None:
        data = pickle.dumps(answer)
        view = memoryview(_HEADER.pack(len(data)) + data)
        while view:
            view = view[self._answers.write(view) or 0 :]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            block = self._messages.read(size - len(data))
            if not block:
                os._exit(0)
            data += block
        return bytes(data)
