"""A program on an emulated ARM CPU that runs regions: a question goes in, tensors come out."""

from __future__ import annotations

import atexit
import struct
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from edgekit.backends.base import Tensor
from edgekit.backends.registry import load_backend
from edgekit.backends.source import INCLUDE
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.sources import BuiltLibrary, built_in_recipe, find_library
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from support.compiled_once import compiled_once
from support.emulated_arm import arm_emulator
from support.needs import ARM_PROGRAMS, require

BOARD = "rpi4"


class ArmMachine:
    """One process under emulation."""

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


def arm_library(backend: str) -> BuiltLibrary:
    """The backend's library for the board, in the user's cache."""
    require(f"{backend}-{BOARD}")
    return _arm_library(backend)


@lru_cache
def _arm_library(backend: str) -> BuiltLibrary:
    board = load_board(BOARD)
    library = find_library(built_in_recipe(backend), board, load_toolchain(board.toolchain))
    assert library is not None
    return library


def start_machine(backend: str) -> ArmMachine:
    """The program BACKEND_arm.cc of this folder, started once for a process."""
    require(f"{backend}-{BOARD}", *ARM_PROGRAMS)
    return _start_machine(backend)


@lru_cache
def _start_machine(backend: str) -> ArmMachine:
    library = arm_library(backend)
    compiler = find_cxx_compiler(load_toolchain(load_board(BOARD).toolchain))
    own = load_backend(backend).include
    program = compiled_once(
        "arm",
        compiler,
        ("-std=c++17", "-O1", "-static"),
        Path(__file__).with_name(f"{backend}_arm.cc"),
        (INCLUDE, *([Path(own)] if own else ()), ffi_headers(), *library.include),
        library.link,
    )
    return ArmMachine(program, arm_emulator())
