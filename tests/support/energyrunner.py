"""The host's side of EEMBC's EnergyRunner, and a firmware on an emulated board that it asks."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from edgekit.profiles.board import load_board

LIMIT_S = 240.0
_READY = "m-ready"
_BYTES_AT_ONCE = 32


class Runner:
    """Commands and their answers, line by line."""

    def __init__(self, said: IO[bytes], asked: IO[bytes]) -> None:
        self._said = said
        self._asked = asked

    def ask(self, command: str) -> list[str]:
        """Send a command, and return the lines before m-ready."""
        self._asked.write(f"{command}%".encode())
        self._asked.flush()
        return self.lines()

    def lines(self) -> list[str]:
        found = []
        while (line := self._line()) != _READY:
            found.append(line)
        return found

    def load(self, data: bytes) -> None:
        """Load the input, in commands that are as short as the framework's."""
        assert self.ask(f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
        for start in range(0, len(data), _BYTES_AT_ONCE):
            is_last = start + _BYTES_AT_ONCE >= len(data)
            said = self.ask(f"db {data[start : start + _BYTES_AT_ONCE].hex()}")
            assert said == (["m-load-done"] if is_last else [])

    def _line(self) -> str:
        line = self._said.readline()
        assert line.endswith(b"\r\n"), f"the emulator ended, or was ended: {line!r}"
        return line.decode("ascii").removesuffix("\r\n")


@contextmanager
def emulated_runner(firmware: Path, board_name: str) -> Iterator[Runner]:
    """Start the firmware on the machine of a board's twin; it ends after LIMIT_S."""
    twin = load_board(board_name).twin
    assert twin is not None
    command = ("qemu-system-arm", "-M", twin.machine, "-kernel", str(firmware))
    quiet = ("-nographic", "-monitor", "none", "-serial", "stdio", "-icount", "shift=6")
    with subprocess.Popen(
        (*command, *quiet), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            yield Runner(process.stdout, process.stdin)
        finally:
            limit.cancel()
            process.kill()
