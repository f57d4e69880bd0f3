"""Runs CMake and ninja: their output goes to a log, and progress is read from it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from edgekit.base.children import Process, TimeoutExpired, start
from edgekit.base.errors import BuildError, MissingToolError
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.parent_process import ending_with_us
from edgekit.cross.toolchain import which
from edgekit.cross.tools import disk_full, disk_full_error
from edgekit.profiles.toolchain import apt_command, pip_command

TOOLS: tuple[tuple[str, str], ...] = (("cmake", "cmake"), ("ninja", "ninja-build"))
"""The programs that build a library, and their Debian packages. Python packages of the same names
provide them too."""
_DECISIVE = re.compile(r"(CC|CXX|C|CXX|CPP|LD|ASM)(FLAGS)?|CMAKE_.*|NINJA_STATUS|DESTDIR")
"""Variables that would change the build without changing its key in the cache."""
_PROGRESS = re.compile(r"\[(\d+)/(\d+)\] ")
_LAST_LINES = 30
_TIME_TO_END = 10
_MEMORY_OF_A_JOB = 1 << 30
_JOBS_VARIABLE = "CMAKE_BUILD_PARALLEL_LEVEL"


def require_build_tools(purpose: str) -> None:
    """Raise MissingToolError that names every missing program."""
    missing = [(tool, package) for tool, package in TOOLS if which(tool) is None]
    if missing:
        raise MissingToolError(
            f"{purpose} needs {' and '.join(tool for tool, _ in missing)}: not found on this host",
            hint=f"{pip_command(*(tool for tool, _ in missing))}, or"
            f" {apt_command(tuple(package for _, package in missing))}",
        )


def jobs() -> int:
    """Return how many compilers run at once: CMAKE_BUILD_PARALLEL_LEVEL, or by cores and memory."""
    given = os.environ.get(_JOBS_VARIABLE, "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // _MEMORY_OF_A_JOB))


class Steps:
    """The commands of one build, in one folder, with one log."""

    def __init__(self, folder: Path, log: IO[bytes]) -> None:
        self._folder = folder
        self._log = log

    def run(
        self,
        command: Sequence[str],
        *,
        doing: str,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run a command; raise BuildError if it fails.

        `doing` completes the error's sentence: "compile ncnn". The command and its children end
        with edgekit, even if that is killed.
        """
        self._log.write(f"$ {' '.join(command)}\n".encode())
        self._log.flush()
        start = self._log.tell()
        with ExitStack() as ending:
            with interrupts_deferred():
                process = self._start(command)
                ending.callback(_end, process)
            assert process.stdout is not None
            for line in process.stdout:
                self._log.write(line)
                match = _PROGRESS.match(line.decode(errors="replace"))
                if match and on_progress:
                    on_progress(int(match[1]), int(match[2]))
            process.wait()
            self._log.flush()
        if process.returncode != 0:
            self._fail(command[0], process.returncode, doing, start)

    def _start(self, command: Sequence[str]) -> Process:
        program = which(command[0])
        if program is None:
            raise MissingToolError(
                f"{command[0]} is gone from this host", hint="install it again, then try again"
            )
        # A watcher ends it if edgekit is killed, which no handler can. It sends TERM and does not
        # kill: ninja's compilers have their own process groups, which only ninja can end.
        return start(
            ending_with_us([str(program), *command[1:]], "TERM"),
            folder=self._folder,
            environment=_environment(os.environ),
        )

    def _fail(self, program: str, status: int, doing: str, start: int) -> None:
        self._log.seek(start)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line]
        if disk_full("\n".join(lines)):
            raise disk_full_error(doing, self._folder)
        how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
        raise BuildError(
            f"{program} {how}: could not {doing}",
            hint=f"the tools' output is in {self._log.name}",
            details=telling_lines(lines),
        )


def telling_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Choose the lines of a failed build from ninja's or CMake's error on, or the last ones."""
    for number, line in enumerate(lines):
        if line.startswith(("FAILED:", "CMake Error")):
            return tuple(lines[number : number + _LAST_LINES])
    return tuple(lines[-_LAST_LINES:])


def _environment(outer: Mapping[str, str]) -> dict[str, str]:
    harmless = {name: value for name, value in outer.items() if not _DECISIVE.fullmatch(name)}
    return {**harmless, "LC_ALL": "C"}


def _end(process: Process) -> None:
    """End a process with TERM first: only ninja can end its compilers."""
    if process.poll() is None:
        process.terminate()
        with suppress(TimeoutExpired):
            process.wait(_TIME_TO_END)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
