"""Processes that end with the process that started them, even where that one is killed.

The kernel signals a child at its parent's death only once the child has asked for that. It tells
nothing of an earlier death: the child compares its parent's number after it has asked.

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
    """Return what the environment of a child needs that calls `end_with_parent`."""
    return {_PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """End this process when its parent ends; at once where the parent has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.pop(_PARENT, None)  # grandchildren have another one
    if parent is not None and os.getppid() != int(parent):
        os._exit(1)


def ending_with_us(command: Sequence[str], how: Literal["KILL", "TERM"] = "KILL") -> list[str]:
    """Return the words of a command that gets a signal when this process ends.

    They are the command's own where `setpriv`, of util-linux, is not installed.
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
