"""Runs compilers and other tools of a toolchain, and reports their output if they fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from edgekit.base.children import Process, end, start
from edgekit.base.errors import BuildError, MissingToolError, StorageError
from edgekit.base.files import path_for_user
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.paths import cache_dir

_LAST_LINES = 20


def run_tool(command: Sequence[str], *, folder: Path, doing: str) -> str:
    """Run a tool in `folder` and return its output; raise BuildError if it fails.

    `doing` completes the error's sentence: "link the library". The tool gets a process group,
    which ends with edgekit: killing a compiler driver alone would leave its linker running.
    """
    with ExitStack() as ending:
        with interrupts_deferred():
            process = _start(command, folder)
            ending.callback(end, process)
        output = process.communicate()[0].decode(errors="replace")
    if process.returncode != 0:
        if disk_full(output):
            raise disk_full_error(doing, folder)
        raise _failure(command, process.returncode, output, doing)
    return output


def _start(command: Sequence[str], folder: Path) -> Process:
    try:
        return start(
            command,
            folder=folder,
            # Compilers put objects with all weights into TMPDIR, and /tmp may be small.
            environment={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder.resolve())},
        )
    except OSError as error:
        raise MissingToolError(
            f"{command[0]} cannot be started: {error.strerror}",
            hint="edgekit doctor shows what is missing and how to install it",
        ) from error


def disk_full(output: str) -> bool:
    """Tell whether a tool's output names a full disk, in the C library's words."""
    return os.strerror(errno.ENOSPC) in output or os.strerror(errno.EDQUOT) in output


def disk_full_error(doing: str, folder: Path) -> StorageError:
    """Make the error for a full disk.

    `folder` holds the intermediate files: in the cache, or next to the future bundle.
    """
    place, cache = path_for_user(folder), cache_dir()
    if place.is_relative_to(cache) or place.is_relative_to(cache.resolve()):
        place = cache
        hint = "free some space (edgekit cache prune), or move the cache with EDGEKIT_CACHE_DIR"
    else:
        hint = "free some space on that disk, or choose a folder on another one with -o"
    return StorageError(f"the disk is full: could not {doing} in {place}", hint=hint)


def _failure(command: Sequence[str], status: int, output: str, doing: str) -> BuildError:
    name = Path(command[0]).name
    how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
    lines = [line for line in output.splitlines() if line.strip()]
    reason = next((line for line in lines if "error" in line.lower()), "it said nothing")
    return BuildError(
        f"{name} {how}, could not {doing}: {reason.strip()[:300]}",
        hint="edgekit doctor checks the toolchain; the tool's last lines are below",
        details=(*lines[-_LAST_LINES:], "command: " + " ".join(command)),
    )
