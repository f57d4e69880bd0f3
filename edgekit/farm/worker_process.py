"""A device's worker, as the keeper sees it: lines from a pipe, and an end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from edgekit.interrupts import interrupts_deferred

_LONGEST_LINE = 1 << 16
_SECONDS_TO_END = 5.0
_LONGEST_REASON = 300


class WorkerProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._rest = b""
        self.last_reason = ""
        assert process.stdout is not None
        self.output: IO[bytes] = process.stdout
        os.set_blocking(self.output.fileno(), False)

    @classmethod
    def started(
        cls, name: str, project: Path | None, key: str, tracker_port: int, port: int
    ) -> WorkerProcess:
        words = [name, str(project or ""), key, str(tracker_port), str(port)]
        with interrupts_deferred():
            return cls(
                subprocess.Popen(
                    [sys.executable, "-m", "edgekit.farm.worker", *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C is for the keeper, who ends its workers
                )
            )

    def heard(self) -> tuple[list[dict[str, Any]], bool]:
        """What it has said since, and whether it said all that it will."""
        try:
            block = os.read(self.output.fileno(), _LONGEST_LINE)
        except BlockingIOError:
            return [], False
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()[-_LONGEST_LINE:]
        messages = []
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a library's chatter on stdout; ours is JSON
            if isinstance(message, dict):
                messages.append(message)
                if message.get("state") == "lost":
                    self.last_reason = str(message.get("reason", ""))[:_LONGEST_REASON]
        return messages, not block

    def ending(self) -> str:
        code = self._process.poll()
        if code is None:
            return "it stopped speaking"
        if code < 0:
            return f"its process was killed: {signal.strsignal(-code) or -code}"
        return f"its process ended with exit code {code}"

    def tell_to_end(self) -> None:
        """Waits for nothing."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """Gone when this returns, and with it what it started over there."""
        self.tell_to_end()
        try:
            self._process.wait(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()
