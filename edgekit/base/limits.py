"""Tells when a process ran into a limit of open files or memory, and which one to raise.

A limit shows itself as nearly anything: numpy's import fails, a library loads without half of its
functions, a program "is there but does not run". The cause is looked for in what the error came
from; and an error that nothing explains is not called a bug where a limit is lower than any work
needs.
"""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator

from edgekit.base.errors import BuildError, EdgekitError, MissingToolError, ResourceError
from edgekit.base.sizes import format_size

_FILES_NEEDED = 64
_MEMORY_NEEDED = 4 << 30
"""Bytes of address space. TVM and an oracle map far more than they use."""
_LEAST_MEMORY = 160 << 20
"""Below this, libraries end the process before an error can be shown."""
_FILES = (errno.EMFILE, errno.ENFILE)
_FILES_TEXT = re.compile(r"Too many open files", re.IGNORECASE)
_MEMORY_TEXT = re.compile(
    r"cannot allocate memory|failed to map segment|std::bad_alloc|can't start new thread"
    r"|out of memory|memory allocation",
    re.IGNORECASE,
)
_PROGRAMS_TEXT = re.compile(
    r"cannot allocate memory|failed to map segment|std::bad_alloc|virtual memory exhausted"
    r"|out of memory allocating",
    re.IGNORECASE,
)
"""What programs of this host say of their own memory; a board's are told of otherwise."""


def reached_limit(error: BaseException) -> ResourceError | None:
    """The limit that an error comes from; None where it comes from something else."""
    for cause in _causes(error):
        if isinstance(cause, (MissingToolError, BuildError)):
            told = limit_told_of("\n".join([cause.message, *cause.details]))
            if told is not None:
                return told
        number = cause.errno if isinstance(cause, OSError) else None
        if number in _FILES or (isinstance(cause, ImportError) and _says(cause, _FILES_TEXT)):
            return _too_many_files()
        if isinstance(cause, MemoryError) or number == errno.ENOMEM:
            return _out_of_memory()
        if isinstance(cause, (ImportError, OSError, RuntimeError)) and _says(cause, _MEMORY_TEXT):
            return _out_of_memory()
    return None


def explained_by_limits(error: BaseException) -> ResourceError | None:
    """What an error that nothing foresaw most likely comes from, where a limit is very low."""
    found = reached_limit(error)
    if found is not None:
        return found
    files, memory = _limit(resource.RLIMIT_NOFILE), _memory_limit()
    if files is not None and files < _FILES_NEEDED:
        return _too_many_files(f" ({_named(error)})")
    if memory is not None and memory < _MEMORY_NEEDED:
        return _out_of_memory(f" ({_named(error)})")
    return None


def limit_told_of(text: str) -> ResourceError | None:
    """The limit that a program ran into, going by its last words."""
    if _FILES_TEXT.search(text):
        return _too_many_files()
    return _out_of_memory() if _PROGRAMS_TEXT.search(text) else None


def refuse_hopeless_limits() -> None:
    """Raise a ResourceError where libraries would end the process without a word."""
    memory = _memory_limit()
    if memory is not None and memory < _LEAST_MEMORY:
        raise _out_of_memory()


def _too_many_files(why: str = "") -> ResourceError:
    limit = _limit(resource.RLIMIT_NOFILE)
    return ResourceError(
        f"the limit of open files is too small: a process may open {limit} at once{why}"
        if limit is not None
        else f"too many files are open on this host{why}",
        hint="raise it with `ulimit -n 1024` and run the command again",
    )


def _out_of_memory(why: str = "") -> ResourceError:
    limit = _memory_limit()
    if limit is None:
        return ResourceError(
            f"this host has not enough free memory{why}",
            hint="end other programs, or use a host with more memory",
        )
    return ResourceError(
        f"the limit of memory is too small: a process may use {format_size(limit)}{why}",
        hint="raise it with `ulimit -v unlimited` and run the command again",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it came from."""
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


def _memory_limit() -> int | None:
    limits = [_limit(resource.RLIMIT_AS), _limit(resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft
