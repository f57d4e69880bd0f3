"""Finds out whether a process reached a limit of files, memory or processes, and which one.

A limit causes nearly any error: numpy's import fails, a library loads without half of its
functions, a program exists but does not run. The causes of an error are searched for a limit. An
unexplained error is not called a bug if a limit is lower than any work needs.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edgekit.base.errors import BuildError, EdgekitError, MissingToolError, ResourceError
from edgekit.base.wording import size

_FILES_NEEDED = 64
_MEMORY_NEEDED = 4 << 30
"""The bytes of address space that edgekit needs. TVM and an oracle map far more than they use."""
_PROCESSES_NEEDED = 64
_LEAST_MEMORY = 160 << 20
"""The bytes below which libraries end the process before an error can be shown."""
_RAISE_FILES = "ulimit -n 1024"
_RAISE_MEMORY = "ulimit -v unlimited"
_RAISE_PROCESSES = "ulimit -u 4096"
_FILES = (errno.EMFILE, errno.ENFILE)
_FILES_TEXT = re.compile(r"Too many open files", re.IGNORECASE)
_MEMORY_TEXT = re.compile(
    r"cannot allocate memory|failed to map segment|std::bad_alloc|out of memory|memory allocation",
    re.IGNORECASE,
)
_PROGRAMS_TEXT = re.compile(
    r"cannot allocate memory|failed to map segment|std::bad_alloc|virtual memory exhausted"
    r"|out of memory allocating|^MemoryError\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Messages of programs on this host about their own memory. Those on boards are not meant."""
_PROCESSES_TEXT = re.compile(
    r"can't start new thread|(fork|spawn|clone|pthread_create|thread|execute)\b[^\n]*"
    r"Resource temporarily unavailable",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class LimitCheck:
    """A limit of this process, and whether it suffices for edgekit."""

    name: str
    found: str
    needed: str
    ok: bool
    raise_it: str
    """The shell command that raises it."""


def look_at_limits() -> tuple[LimitCheck, ...]:
    """Compare each limit of this process with what a build needs."""
    files, memory, processes = _files_limit(), _memory_limit(), _processes_limit()
    return (
        LimitCheck(
            "limit of open files",
            "none" if files is None else f"{files}",
            f"{_FILES_NEEDED}",
            files is None or files >= _FILES_NEEDED,
            _RAISE_FILES,
        ),
        LimitCheck(
            "limit of memory",
            "none" if memory is None else size(memory),
            size(_MEMORY_NEEDED),
            memory is None or memory >= _MEMORY_NEEDED,
            _RAISE_MEMORY,
        ),
        LimitCheck(
            "limit of processes",
            "none" if processes is None else f"{processes}",
            f"{_PROCESSES_NEEDED}",
            processes is None or processes >= _PROCESSES_NEEDED,
            _RAISE_PROCESSES,
        ),
    )


def reached_limit(error: BaseException) -> ResourceError | None:
    """Return the limit that caused an error; None if the cause is something else."""
    for cause in _causes(error):
        if isinstance(cause, (MissingToolError, BuildError)):
            told = limit_named_in("\n".join([cause.message, *cause.details]))
            if told is not None:
                return told
        number = cause.errno if isinstance(cause, OSError) else None
        if number in _FILES or (isinstance(cause, ImportError) and _says(cause, _FILES_TEXT)):
            return _too_many_files()
        if isinstance(cause, RuntimeError) and _says(cause, _PROCESSES_TEXT):
            return _too_many_processes()
        if isinstance(cause, MemoryError) or number == errno.ENOMEM:
            return _out_of_memory()
        if isinstance(cause, (ImportError, OSError, RuntimeError)) and _says(cause, _MEMORY_TEXT):
            return _out_of_memory()
    return None


def explained_by_limits(error: BaseException) -> ResourceError | None:
    """Return the limit that most likely caused an unexpected error, if a limit is very low."""
    found = reached_limit(error)
    if found is not None:
        return found
    low = [check for check in look_at_limits() if not check.ok]
    if not low:
        return None
    told = {
        _RAISE_FILES: _too_many_files,
        _RAISE_MEMORY: _out_of_memory,
        _RAISE_PROCESSES: _too_many_processes,
    }
    return told[low[0].raise_it](f" ({_named(error)})")


def limit_named_in(text: str) -> ResourceError | None:
    """Return the limit that a program reached, judging by its last lines."""
    if _FILES_TEXT.search(text):
        return _too_many_files()
    if _PROCESSES_TEXT.search(text):
        return _too_many_processes()
    return _out_of_memory() if _PROGRAMS_TEXT.search(text) else None


@contextmanager
def starting_processes() -> Iterator[None]:
    """Turn the kernel's refusal of one more process into a ResourceError."""
    try:
        yield
    except BlockingIOError as error:
        raise _too_many_processes() from error


def explained_interrupt() -> ResourceError | None:
    """Say whether an interrupt may come from a limit. OpenBLAS interrupts its own process when it
    can't start its threads."""
    if _processes_limit() is None:
        return None
    try:
        threading.Thread(target=lambda: None).start()
    except RuntimeError:
        return _too_many_processes()
    return None


def refuse_hopeless_limits() -> None:
    """Raise a ResourceError if libraries would end the process without a message.

    If few processes may run, let libraries start fewer threads.
    """
    memory, processes = _memory_limit(), _processes_limit()
    if memory is not None and memory < _LEAST_MEMORY:
        raise _out_of_memory()
    if processes is not None and processes < _PROCESSES_NEEDED:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts no threads then


def _too_many_files(why: str = "") -> ResourceError:
    limit = _files_limit()
    return ResourceError(
        f"the limit of open files is too small: a process may open {limit} at once{why}"
        if limit is not None
        else f"too many files are open on this host{why}",
        hint=f"raise it with `{_RAISE_FILES}` and run the command again",
    )


def _out_of_memory(why: str = "") -> ResourceError:
    limit = _memory_limit()
    if limit is None:
        return ResourceError(
            f"this host has not enough free memory{why}",
            hint="end other programs, or use a host with more memory",
        )
    return ResourceError(
        f"the limit of memory is too small: a process may use {size(limit)}{why}",
        hint=f"raise it with `{_RAISE_MEMORY}` and run the command again",
    )


def _too_many_processes(why: str = "") -> ResourceError:
    """Return the error for too many processes, or too little memory for a thread's stack."""
    if _memory_limit() is not None:
        return _out_of_memory(why)
    limit = _processes_limit()
    if limit is None:
        return ResourceError(
            f"this host starts no further process or thread: too many run, or memory is full{why}",
            hint="end other programs, or raise the container's limit of processes",
        )
    return ResourceError(
        "the limit of processes is too small: a user may have"
        f" {limit} processes and threads at once{why}",
        hint=f"end other programs of yours, or raise it with `{_RAISE_PROCESSES}` and run the"
        " command again",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """List an error and all its causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            waiting += [cause.__context__, cause.__cause__]


def _says(error: BaseException, text: re.Pattern[str]) -> bool:
    return not isinstance(error, EdgekitError) and text.search(str(error)) is not None


def _named(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__


def _files_limit() -> int | None:
    return _limit(resource.RLIMIT_NOFILE)


def _processes_limit() -> int | None:
    """Return the limit of processes, which does not apply to root."""
    return None if os.geteuid() == 0 else _limit(resource.RLIMIT_NPROC)


def _memory_limit() -> int | None:
    limits = [_limit(resource.RLIMIT_AS), _limit(resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft
