"""Runs flash tools: without keyboard input, within a time limit, and never longer than edgekit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgekit.base.children import TimeoutExpired
from edgekit.base.children import run as run_program
from edgekit.base.errors import DeviceError, MissingToolError
from edgekit.base.wording import duration
from edgekit.cross.toolchain import which

_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Said:
    status: int
    output: str
    """Both of its streams, as they came."""


class Tools(Protocol):
    """The flash tools of the machine that the board is attached to."""

    @property
    def machine(self) -> str:
        """Name of the machine for use in a sentence."""

    def find(self, tool: str, install: str) -> str:
        """Return the tool's path; MissingToolError, with the command that installs it, if it is
        missing."""

    def placed(self, file: Path) -> AbstractContextManager[str]:
        """Provide a file of this machine under the path by which the tools find it."""

    def run(
        self, command: Sequence[str], *, folder: Path | None = None, limit_s: float = _LIMIT_SECONDS
    ) -> Said:
        """Run a tool without keyboard input; end it with edgekit or at the limit."""


class ThisMachine:
    machine = "this machine"

    def find(self, tool: str, install: str) -> str:
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
        try:
            done = run_program(
                command,
                folder=folder,
                environment={**os.environ, "LC_ALL": "C", "NO_COLOR": "1"},
                limit_s=limit_s,
                together=True,
            )
        except TimeoutExpired as error:
            raise DeviceError(
                f"{Path(command[0]).name} did not finish within {duration(limit_s)}, and was ended",
                hint="unplug the board, plug it in and try again",
            ) from error
        except OSError as error:
            raise MissingToolError(
                f"{command[0]} cannot be started: {error.strerror}", hint="install it again"
            ) from error
        return Said(done.status, done.output)


HERE = ThisMachine()
