"""Running a compiler or another tool of a toolchain, and saying what it said when it fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from edgekit.base.children import Process, end, start
from edgekit.base.errors import BuildError, MissingToolError, StorageError
from edgekit.base.files import known_path
from edgekit.base.interrupts import interrupts_deferred
from edgekit.base.paths import cache_dir

_LAST_LINES = 20


def run_tool(command: Sequence[str], *, folder: Path, doing: str) -> str:
    """Run a tool in `folder` to do what `doing` says ("link the library"); gives what it printed,
    BuildError where it fails.

    The tool has a process group of its own, which goes with us: a compiler driver that is
    killed alone would leave its linker running.
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
            # Compilers put objects, weights and all, where TMPDIR says: not into a small /tmp.
            environment={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder.resolve())},
        )
    except OSError as error:
        raise MissingToolError(
            f"{command[0]} cannot be started: {error.strerror}",
            hint="edgekit doctor says what is missing and how to install it",
        ) from error


def disk_full(output: str) -> bool:
    """Whether a tool failed for want of room; it says so in the C library's words."""
    return os.strerror(errno.ENOSPC) in output or os.strerror(errno.EDQUOT) in output


def disk_full_error(doing: str, folder: Path) -> StorageError:
    """`folder` is where the intermediate files are: in the cache, or beside the bundle to be."""
    known, cache = known_path(folder), cache_dir()
    if known.is_relative_to(cache) or known.is_relative_to(cache.resolve()):
        known = cache
        hint = "free some space (edgekit cache prune), or move the cache with EDGEKIT_CACHE_DIR"
    else:
        hint = "free some space there, or choose a folder on another disk with -o"
    return StorageError(f"the disk is full: could not {doing} in {known}", hint=hint)


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
