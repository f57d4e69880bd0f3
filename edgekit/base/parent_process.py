"""Ends a process together with its parent, even if the parent is killed.

The kernel signals a child at its parent's death if the child has requested that. It does not report
an earlier death: the child compares its parent's number after the request.

The kernel means the parent's *thread*: start such a process from a thread that outlives it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from typing import Literal

from edgekit.base.programs import find_program

_PR_SET_PDEATHSIG = 1
_PARENT = "EDGEKIT_PARENT"
"""The variable that tells a child its parent's number. `agent/src/parent.cc` reads it too."""

_SAME_PARENT = '[ "$PPID" = "$0" ] && exec "$@"'


def parent_environment() -> dict[str, str]:
    """Return the variables that a child needs to call `end_with_parent`."""
    return {_PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """End this process when its parent ends, at once if the parent has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.pop(_PARENT, None)  # grandchildren have another one
    if parent is not None and os.getppid() != int(parent):
        os._exit(1)


def ending_with_us(command: Sequence[str], how: Literal["KILL", "TERM"] = "KILL") -> list[str]:
    """Return the words of a command that gets a signal when this process ends.

    Without `setpriv` of util-linux they are the command's own.
    """
    setpriv = find_program("setpriv")
    if setpriv is None:
        return list(command)
    return [
        str(setpriv),
        "--pdeathsig",
        how,
        "/bin/sh",
        "-c",
        _SAME_PARENT,
        str(os.getpid()),
        *command,
    ]
