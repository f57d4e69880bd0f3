"""Hands an exception from a child process to its parent."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import NoReturn

import edgekit.base.errors
from edgekit.base.errors import EdgekitError
from edgekit.base.limits import explained_by_limits, reached_limit
from edgekit.base.options import option


@dataclass(frozen=True)
class Failure:
    """An exception in a form that can be sent to another process."""

    kind: str
    """The name of a class in edgekit.base.errors; empty for any other exception."""
    message: str
    hint: str | None
    details: tuple[str, ...]
    traceback: str


class _RemoteTraceback(Exception):
    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def failure_of(error: Exception) -> Failure:
    """Return an exception in a form for another process."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, EdgekitError):
        typed: EdgekitError | None = reached_limit(error) or error
    else:
        typed = explained_by_limits(error)
    if typed is not None:
        return Failure(type(typed).__name__, typed.message, typed.hint, typed.details, trace)
    said = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    return Failure("", what, None, (), trace)


def raise_failure(failure: Failure) -> NoReturn:
    """Raise the error that another process sent, with its traceback as the cause."""
    cause = _RemoteTraceback(failure.traceback)
    if not failure.kind:
        raise EdgekitError(
            f"this is a bug in edgekit: {failure.message}",
            hint=f"run the same command with {option('debug')} and report it with the traceback",
        ) from cause
    kind: type[EdgekitError] = getattr(edgekit.base.errors, failure.kind)
    raise kind(failure.message, hint=failure.hint, details=failure.details) from cause
