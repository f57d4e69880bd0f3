"""Running a flash tool: it hears no keyboard, ends with us, and may not take for ever."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgekit.cross.toolchain import which
from edgekit.errors import DeviceError, MissingToolError
from edgekit.interrupts import interrupts_deferred

_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Said:
    status: int
    output: str
    """Both of its streams, as they came."""


class Tools(Protocol):
    """Where the board is attached, and its tools are."""

    @property
    def machine(self) -> str:
        """In a sentence."""

    def find(self, tool: str, install: str) -> str:
        """MissingToolError, with the command that installs it, where it is not there."""

    def placed(self, file: Path) -> AbstractContextManager[str]:
        """A file of this machine as the tools find it."""

    def run(
        self, command: Sequence[str], *, folder: Path | None = None, limit_s: float = _LIMIT_SECONDS
    ) -> Said:
        """It hears no keyboard, ends with us, and may not take for ever."""


class ThisMachine:
    machine = "this machine"

    def find(self, tool: str, install: str) -> str:
        """MissingToolError, with the command that installs it, where it is not there."""
        found = which(tool)
        if found is None:
            raise MissingToolError(
                f"{tool}, which writes the firmware, is not installed", hint=install
            )
        return str(found)

    def placed(self, file: Path) -> AbstractContextManager[str]:
        return nullcontext(str(file.resolve()))

    def run(
        self, command: Sequence[str], *, folder: Path | None = None, limit_s: float = _LIMIT_SECONDS
    ) -> Said:
        with interrupts_deferred():
            try:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "LC_ALL": "C", "NO_COLOR": "1"},
                    start_new_session=True,
                )
            except OSError as error:
                raise MissingToolError(
                    f"{command[0]} cannot be started: {error.strerror}", hint="install it again"
                ) from error
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise DeviceError(
                f"{Path(command[0]).name} was not done after {limit_s:.0f} s, and was ended",
                hint="unplug the board, plug it in and try again",
            ) from error
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        return Said(process.returncode, output.decode(errors="replace"))


HERE = ThisMachine()
