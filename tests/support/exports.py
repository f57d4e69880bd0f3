"""Exported applications: built with CMake as their README says."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def checked(command: Sequence[str | Path], folder: Path) -> str:
    """What a command that has to work prints."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(app: Path, *settings: str) -> str:
    """Configured and compiled in app/build; gives what the compiler said."""
    tool = ("-DCMAKE_TOOLCHAIN_FILE=toolchain.cmake",)
    checked(("cmake", "-S", ".", "-B", "build", *tool, *settings), app)
    return checked(("cmake", "--build", "build", "--parallel", "2"), app)
