"""The connection to a host through the input and output of a `ProxyCommand` program."""

from __future__ import annotations

import os
import select
import threading
from typing import IO

from edgekit.base.children import (
    NEUTRAL_FOLDER,
    PIPE,
    LastLines,
    Streams,
    end,
    shell_command,
    start,
)
from edgekit.base.interrupts import interrupts_deferred

_KEPT_LINES = 5
_SECONDS_FOR_LAST_WORDS = 1.0


class ProxyCommandSocket:
    """The socket that paramiko needs, over the pipes of a program that is started like any other
    child: in a neutral folder, with absolute search paths. It ends with the socket.

    The user's shell runs the command, as in OpenSSH.
    """

    def __init__(self, command: str) -> None:
        with interrupts_deferred():
            self._process = start(
                shell_command(f"exec {command}"),
                folder=NEUTRAL_FOLDER,
                streams=Streams(PIPE, errors=PIPE, buffered=False),
            )
        self._input = _pipe(self._process.stdin)
        self._output = _pipe(self._process.stdout)
        self._said = LastLines(_pipe(self._process.stderr), _KEPT_LINES)
        self._process.stdout = self._process.stderr = None  # their readers close them
        os.set_blocking(self._input.fileno(), False)
        self._timeout: float | None = None
        self._closed = False
        self._sending, self._receiving = threading.Lock(), threading.Lock()

    @property
    def closed(self) -> bool:
        return self._closed

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def send(self, data: bytes) -> int:
        """Write what the pipe takes; TimeoutError if it takes nothing in time."""
        with self._sending:
            self._wait_for(self._input, select.POLLOUT)
            try:
                return os.write(self._input.fileno(), data)
            except BlockingIOError as error:
                raise TimeoutError("the ProxyCommand reads too slowly") from error

    def recv(self, size: int) -> bytes:
        """Read available bytes; empty if the program has ended."""
        with self._receiving:
            self._wait_for(self._output, select.POLLIN)
            return os.read(self._output.fileno(), size)

    def last_words(self) -> str | None:
        """Return the last line that the program wrote to its error output."""
        self._said.wait(_SECONDS_FOR_LAST_WORDS)
        lines = [line.strip() for line in self._said]
        return lines[-1][:300] if lines else None

    def close(self) -> None:
        self._closed = True
        end(self._process)  # wakes senders and receivers
        with self._sending, self._receiving:
            self._input.close()
            self._output.close()

    def _wait_for(self, pipe: IO[bytes], event: int) -> None:
        if self._closed:
            raise BrokenPipeError("the ProxyCommand has ended")
        waiting = select.poll()
        waiting.register(pipe.fileno(), event)
        if not waiting.poll(None if self._timeout is None else self._timeout * 1000):
            raise TimeoutError("the ProxyCommand does not answer")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
