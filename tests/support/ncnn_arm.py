"""ncnn regions on an emulated ARM CPU: the board's own library, under QEMU, a region at a time."""

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
from edgekit.backends.base import Options, Region, Tensor
from edgekit.backends.ncnn import BACKEND
from edgekit.backends.ncnn.layout import held_tensor
from edgekit.backends.ncnn.net import net_of
from edgekit.backends.source import INCLUDE
from edgekit.board import load_board
from edgekit.cross.sources import built_in_recipe, find_library
from edgekit.cross.toolchain import find_cxx_compiler, load_toolchain
from edgekit.cross.tools import run_tool
from edgekit.errors import EdgekitError
from support.ncnn_lab import layer_types

BOARD = "rpi4"


class ArmMachine:
    """One process under emulation, which takes regions with their inputs."""

    def __init__(self, program: Path, emulator: str, types: dict[str, int]) -> None:
        self.types = types
        self._process = subprocess.Popen(
            [emulator, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

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
def _program() -> tuple[Path, str, dict[str, int]]:
    """Skips the test where the emulator, the compiler or the library is missing."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    board = load_board(BOARD)
    toolchain = load_toolchain(board.toolchain)
    try:
        compiler = find_cxx_compiler(toolchain)
        library = find_library(built_in_recipe("ncnn"), board, toolchain)
    except EdgekitError as error:
        pytest.skip(error.message)
    if emulator is None or library is None:
        pytest.skip(f"needs qemu-user, and edgekit toolchains build {BOARD}")
    made = tempfile.TemporaryDirectory(prefix="edgekit-ncnn-arm-")
    atexit.register(made.cleanup)
    folder = Path(made.name)
    includes = (INCLUDE, BACKEND.include, ffi_headers(), *library.include)
    command = (
        *compiler.command,
        *("-std=c++17", "-O1", "-static", "-o", str(folder / "arm")),
        *(word for path in includes for word in ("-I", str(path))),
        str(Path(__file__).with_suffix(".cc")),
        *library.link,
    )
    run_tool(command, folder=folder, doing="compile for the emulated board")
    return folder / "arm", emulator, layer_types(library)


def start_arm() -> ArmMachine:
    return ArmMachine(*_program())


class ArmRegion:
    """A region as support.ncnn_lab runs it, elsewhere."""

    copied = 0

    def __init__(self, machine: ArmMachine, region: Region, options: Options) -> None:
        self.region = region
        self._machine = machine
        net = net_of(region)
        words = [machine.types[w] if isinstance(w, str) else w for w in net.words()]
        weights = net.weights("fp32")
        numbers = net.blobs
        self._head = b"".join(
            (
                struct.pack(f"<{1 + len(words)}i", len(words), *words),
                struct.pack("<i", len(weights)) + weights,
                _rows(region.inputs, [numbers[name] for name in net.inputs]),
                _rows(region.outputs, [numbers[name] for name in net.outputs]),
            )
        )

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        given = b"".join(np.ascontiguousarray(value).tobytes() for value in inputs)
        return self._machine.ask(self._head + given, self.region.outputs)


def _rows(tensors: Sequence[Tensor], blobs: Sequence[int]) -> bytes:
    rows = [struct.pack("<i", len(tensors))]
    for tensor, blob in zip(tensors, blobs, strict=True):
        shape = held_tensor(tensor)
        numbers = (blob, len(shape), *shape, *(0,) * (4 - len(shape)))
        rows.append(struct.pack("<7i", *numbers, tensor.dtype == "int8"))
    return b"".join(rows)
