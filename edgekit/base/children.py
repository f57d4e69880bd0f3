"""Starts all of edgekit's child processes.

None of them finds a program, a module, a library or a setting in the current folder, which may be
a project that a stranger wrote. Programs are started by absolute paths, in a folder of their own,
with an environment whose search paths are absolute. Python is started isolated and given the
folders that this process imports from.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import IO, NoReturn, TypeAlias

from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.limits import starting_processes
from edgekit.base.options import options_environment
from edgekit.base.parent_process import end_with_parent, parent_environment
from edgekit.base.paths import PACKAGE
from edgekit.base.programs import find_program, with_absolute_paths

Process: TypeAlias = "subprocess.Popen[bytes]"
"""A started program."""
TimeoutExpired = subprocess.TimeoutExpired
PIPE, NOTHING, WITH_OUTPUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
"""The source or destination of a program's stream."""
NEUTRAL_FOLDER = Path("/")
"""A folder that ordinary users cannot write to."""

_LONGEST_LINE = 4096


@dataclass(frozen=True)
class Streams:
    """The source of a program's input, and the destinations of its output."""

    input: int | IO[bytes] = NOTHING
    output: int | IO[bytes] = PIPE
    errors: int | IO[bytes] = WITH_OUTPUT
    buffered: bool = True
    """Whether this end of a pipe has a buffer."""


@dataclass(frozen=True)
class Done:
    """The result of a program that ended by itself."""

    status: int
    output: str
    errors: str
    """The error output; empty if it was joined to the output."""

    @property
    def last_words(self) -> str:
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"it ended with status {self.status}"


def start(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    streams: Streams = Streams(),
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start a program in `folder`, in a session of its own. Call it while interrupts are deferred.

    A terminal's Ctrl-C only reaches edgekit, which ends its children. `environment` replaces this
    process's own.
    """
    with starting_processes():
        return subprocess.Popen(
            _located(command),
            cwd=folder,
            env=with_absolute_paths(os.environ if environment is None else environment),
            stdin=streams.input,
            stdout=streams.output,
            stderr=streams.errors,
            bufsize=-1 if streams.buffered else 0,
            pass_fds=pass_fds,
            start_new_session=True,
        )


def end(process: Process) -> None:
    """Kill a process and all its children, if it still runs, and close its output."""
    if process.returncode is None:  # no other process gets its number before it is waited for
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def run(
    command: Sequence[str],
    *,
    limit_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    together: bool = False,
    given: bytes | None = None,
) -> Done:
    """Run a program without keyboard input; TimeoutExpired if it takes longer than `limit_s`.

    Without a `folder` it gets an empty one of its own. `together` joins both streams in the output.
    `given` is the program's input.
    """
    with ExitStack() as ending:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="edgekit-tool-", ignore_cleanup_errors=True)
            folder = Path(ending.enter_context(made))
        with interrupts_deferred():
            process = start(
                command,
                folder=folder,
                environment=environment,
                streams=Streams(
                    input=NOTHING if given is None else PIPE,
                    errors=WITH_OUTPUT if together else PIPE,
                ),
            )
            ending.callback(end, process)
        output, errors = process.communicate(given, timeout=limit_s)
        return Done(
            process.returncode,
            output.decode(errors="replace"),
            (errors or b"").decode(errors="replace"),
        )


def run_in_fork(work: Callable[[], NoReturn]) -> int:
    """Run a function in a copy of this process; return its exit code, or minus its signal."""
    process = os.fork()
    if process == 0:
        end_with_parent()
        work()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by an interactive program."""
    located = _located(command)
    os.execve(located[0], located, with_absolute_paths(os.environ))


def folder_of_python() -> str:
    """Return the folder of the programs of the Python that runs edgekit."""
    return str(Path(sys.executable).parent)


def spoken_module(module: str) -> str:
    """Return the command that a user types to run a module of the Python that runs edgekit."""
    safe = "-P" if sys.version_info >= (3, 11) else "-I"
    return f"{sys.executable} {safe} -m {module}"


def has_pip() -> bool:
    """Return whether this Python has pip. Only the folders of packages are asked: setuptools
    changes its imports for good when one of its own finders is asked for pip."""
    return PathFinder.find_spec("pip") is not None


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a Python module as `-m` does, isolated."""
    runs = "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    return (*_isolated(f"del sys.argv[0]; import runpy; {runs}"), module, *arguments)


def statement_command(statement: str) -> tuple[str, ...]:
    """Return the command that runs a Python statement, isolated."""
    return _isolated(statement)


def shell_command(text: str) -> tuple[str, ...]:
    """Return the command that runs a line in the user's shell."""
    shell = find_program(os.environ.get("SHELL", ""))
    return (str(shell or "/bin/sh"), "-c", text)


def start_module(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    stderr: int = PIPE,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start one of edgekit's Python modules, with pipes. Call it while interrupts are deferred.

    `environment` is added to this process's own. The module may call `end_with_parent`.
    """
    return start(
        module_command(*arguments),
        folder=NEUTRAL_FOLDER,
        environment={
            **os.environ,
            **options_environment(),
            **(environment or {}),
            **parent_environment(),
        },
        streams=Streams(PIPE, errors=stderr, buffered=False),
        pass_fds=pass_fds,
    )


def import_folders() -> tuple[str, ...]:
    """List the folders that this process imports from, without the current one.

    With them a child process imports the same edgekit and the same packages.
    """
    root = str(PACKAGE.parent)
    current = _current_folder()
    found = [
        entry
        for entry in sys.path
        if Path(entry).is_absolute() and (entry == root or os.path.realpath(entry) != current)
    ]
    return tuple(found) if root in found else (root, *found)


class LastLines:
    """The last lines that a process wrote to a stream."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._lines: deque[str] = deque(maxlen=most)
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def __iter__(self) -> Iterator[str]:
        return iter([line for line in self._lines if line.strip()])

    def wait(self, seconds: float) -> None:
        """Wait until the process has closed the stream."""
        self._reader.join(timeout=seconds)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(_LONGEST_LINE):
                self._lines.append(line.decode(errors="replace").rstrip())


def _isolated(statement: str) -> tuple[str, ...]:
    """Return a command that runs a statement in an isolated Python.

    It takes no folder from the environment, and not the current one. It gets this process's import
    folders; those of its own start-up, such as editable packages, come last.
    """
    set_path = f"sys.path[:] = dict.fromkeys([*{list(import_folders())!r}, *sys.path])"
    options = ["-I", *(["-B"] if sys.dont_write_bytecode else [])]
    if sys.flags.utf8_mode:
        options += ["-X", "utf8"]
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return (sys.executable, *options, "-c", f"import sys; {set_path}; {statement}")


def _located(command: Sequence[str]) -> list[str]:
    program = find_program(command[0])
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    return [str(program), *command[1:]]


def _current_folder() -> str | None:
    try:
        return os.path.realpath(Path.cwd())
    except FileNotFoundError:
        return None
