"""A worker as the keeper sees it: lines from a pipe, and an end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from edgekit.base.children import NOTHING, PIPE, Process, Streams, TimeoutExpired, start
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.json_reader import read_json
from edgekit.base.parent_process import parent_environment
from edgekit.devices.keeper_client import LONGEST_LINE

_BLOCK = 1 << 16
_SECONDS_TO_END = 5.0
_LONGEST_REASON = 300


class WorkerProcess:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._rest = bytearray()
        self.seconds_silent = 0.0
        """The keeper's count since the last message."""
        self.last_reason = ""
        assert process.stdout is not None
        self.output: IO[bytes] = process.stdout
        os.set_blocking(self.output.fileno(), False)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)

    @classmethod
    def started(cls, command: Sequence[str]) -> WorkerProcess:
        with interrupts_deferred():
            return cls(
                start(
                    command,
                    folder=Path(),  # the project's: boards/ in it names boards
                    streams=Streams(PIPE, errors=NOTHING, buffered=False),
                    environment={**os.environ, **parent_environment()},
                )
            )

    def tell(self, document: Mapping[str, object]) -> bool:
        """Send a document without waiting; say whether the worker took it."""
        data = json.dumps(document).encode() + b"\n"
        assert self._process.stdin is not None
        try:
            return os.write(self._process.stdin.fileno(), data) == len(data)
        except (BlockingIOError, BrokenPipeError):
            return False

    def kill(self, reason: str) -> None:
        """Kill the worker; `read` reports its end."""
        self.last_reason = reason
        self._process.kill()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the new messages, and whether the worker has closed its output."""
        try:
            block = os.read(self.output.fileno(), _BLOCK)
        except BlockingIOError:
            return [], False
        self.seconds_silent = 0.0
        self._rest += block
        *lines, rest = bytes(self._rest).split(b"\n") if b"\n" in block else [bytes(self._rest)]
        self._rest = bytearray(rest[-LONGEST_LINE:])
        messages = []
        for line in lines:
            try:
                message = read_json(line)
            except ValueError:
                continue  # a library wrote to stdout; messages are JSON
            if isinstance(message, dict):
                messages.append(message)
                if message.get("state") == "lost":
                    self.last_reason = str(message.get("reason", ""))[:_LONGEST_REASON]
        return messages, not block

    def ending(self) -> str:
        code = self._process.poll()
        if code is None:
            return "it closed its output"
        if code < 0:
            return f"its process was killed: {signal.strsignal(-code) or -code}"
        return f"its process ended with exit code {code}"

    def tell_to_end(self) -> None:
        """Tell the worker to end, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """End the worker and what it started on the device, and wait for that."""
        self.tell_to_end()
        try:
            self._process.wait(timeout=_SECONDS_TO_END)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()
