"""A Python process that runs a module of edgekit's: started so that it finds this very edgekit, and
listened to so that it never waits for its stderr to be read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from edgekit.parent_process import parent_environment

_LONGEST_LINE = 4096


def start_module(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """`python -m ARGUMENTS`, with pipes. Start it where interrupts are deferred."""
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",  # -m puts the working directory on the path: not one that a user happens to be in
        env={
            **os.environ,
            **(environment or {}),
            **_where_edgekit_is(),
            **parent_environment(),
        },
        start_new_session=True,  # a terminal's Ctrl-C is for us; we end the child
    )


class LastLines:
    """What a process wrote last to a stream."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._lines: deque[str] = deque(maxlen=most)
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def __iter__(self) -> Iterator[str]:
        return iter([line for line in self._lines if line.strip()])

    def wait(self, seconds: float) -> None:
        """Until the other side has closed the stream."""
        self._reader.join(timeout=seconds)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(_LONGEST_LINE):
                self._lines.append(line.decode(errors="replace").rstrip())


def _where_edgekit_is() -> dict[str, str]:
    """For the child to find this very edgekit, even when it runs from a checkout."""
    ours = Path(__file__).resolve().parent.parent
    if ours.name in ("site-packages", "dist-packages"):
        return {}
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(ours), inherited] if inherited else [str(ours)])}
