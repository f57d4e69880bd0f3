"""ACL regions on an emulated ARM CPU: the board's own library, under QEMU, a region at a time."""

from __future__ import annotations

import atexit
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from edgekit.agent.runtime import ffi_headers
from edgekit.backends.acl import BACKEND
from edgekit.backends.base import Options, Region, Tensor
from edgekit.backends.plain.program import program_of
from edgekit.backends.source import INCLUDE
from edgekit.board import load_board
from edgekit.cross.sources import built_in_recipe, find_library
from edgekit.cross.toolchain import find_cxx_compiler, load_toolchain
from edgekit.cross.tools import run_tool
from edgekit.errors import EdgekitError
from edgekit.model import Model
from support.region_lab import Offloaded, run_offloaded, selection_for

BOARD = "rpi4"


class ArmMachine:
    """One process under emulation, which takes regions with their inputs."""

    def __init__(self, program: Path, emulator: str) -> None:
        self._process = subprocess.Popen(
            [emulator, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        atexit.register(self.close)

    def ask(self, question: bytes, shapes: Sequence[Tensor]) -> list[np.ndarray]:
        assert self._process.stdin is not None
        self._process.stdin.write(question)
        self._process.stdin.flush()
        (length,) = struct.unpack("<i", self._read(4))
        if length:
            raise RuntimeError(self._read(length).decode())
        return [
            np.frombuffer(self._read(tensor.nbytes), tensor.dtype).reshape(tensor.shape)
            for tensor in shapes
        ]

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        answer = self._process.stdout.read(size)
        assert len(answer) == size, "the emulated process ended"
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@lru_cache(maxsize=1)
def arm_program() -> tuple[Path, str]:
    """Skips the test where the emulator, the compiler or the library is missing."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    board = load_board(BOARD)
    toolchain = load_toolchain(board.toolchain)
    try:
        compiler = find_cxx_compiler(toolchain)
        library = find_library(built_in_recipe("acl"), board, toolchain)
    except EdgekitError as error:
        pytest.skip(error.message)
    if emulator is None or library is None:
        pytest.skip(f"needs qemu-user, and edgekit toolchains build {BOARD}")
    made = tempfile.TemporaryDirectory(prefix="edgekit-acl-arm-")
    atexit.register(made.cleanup)
    folder = Path(made.name)
    includes = (INCLUDE, BACKEND.include, ffi_headers(), *library.include)
    command = (
        *compiler.command,
        *("-std=c++17", "-O1", "-static", "-o", str(folder / "arm")),
        *(word for path in includes for word in ("-isystem", str(path))),
        str(Path(__file__).with_suffix(".cc")),
        *library.link,
    )
    run_tool(command, folder=folder, doing="compile for the emulated board")
    return folder / "arm", emulator


@lru_cache(maxsize=1)
def arm_machine() -> ArmMachine:
    return ArmMachine(*arm_program())


class AclRegion:
    """A region that runs there: made, run twice and given up for each call."""

    def __init__(self, region: Region, options: Options, weights: bytes | None = None) -> None:
        self.region = region
        program = program_of(region)
        text = "".join(f"{line}\0" for line in program.lines).encode("ascii", "replace")
        blob = program.weights if weights is None else weights
        self._head = b"".join(struct.pack("<i", len(part)) + part for part in (text, blob))

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        given = b"".join(np.ascontiguousarray(value).tobytes() for value in inputs)
        question = self._head + struct.pack("<i", len(given)) + given
        return arm_machine().ask(question, self.region.outputs)


def offloaded(model: Model, inputs: Sequence[np.ndarray], **options: object) -> Offloaded:
    """The model with everything in ACL that ACL takes, and TVM, on this machine, for the rest."""
    return run_offloaded(model, inputs, selection_for("acl", **options), AclRegion)
