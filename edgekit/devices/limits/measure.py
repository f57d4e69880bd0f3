"""Compiles the program that measures a device's limits, and reads what it printed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from edgekit.base.errors import DeviceError
from edgekit.base.roof import Limits
from edgekit.cross.toolchain import find_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.toolchain import Toolchain

SECONDS = 120.0
"""The longest time that it may take."""
NATIVE = ("-march=native",)
"""The compiler's flags for this machine's own CPU."""
_SOURCE = Path(__file__).with_name("roof.c")
_LINE = re.compile(r"^(float32|integers|bytes) ([0-9.]{1,20}(?:e\+?[0-9]{1,3})?)$", re.MULTILINE)


def compile_program(toolchain: Toolchain, cpu_flags: Sequence[str], folder: Path) -> Path:
    """Compile the program for a CPU; MissingToolError without a compiler."""
    compiler = find_compiler(toolchain)
    program = folder / "roof"
    flags = (*toolchain.compile_flags, *toolchain.spelled(cpu_flags))
    options = ("-O3", "-ffp-contract=fast", "-o", os.fspath(program), os.fspath(_SOURCE))
    command = (*compiler.command, *flags, *options, "-lpthread")
    run_tool(command, folder=folder, doing="compile what measures the limits of a device")
    return program


def parse_limits(text: str, threads: int, device: str) -> Limits:
    """Read what the program printed; DeviceError if it is not that."""
    found = dict(_LINE.findall(text))
    try:
        return Limits(
            threads, float(found["float32"]), float(found["integers"]), float(found["bytes"])
        )
    except (KeyError, ValueError) as error:
        raise DeviceError(
            f"the program that measures the limits of {device} printed something else",
            hint="run the same command again",
            details=tuple(text.splitlines()[:4]),
        ) from error
