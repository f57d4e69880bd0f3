"""Regions at once, without a C++ compiler for each: what a backend's header does, on numpy arrays.

One small library is compiled for all tests of a backend. `support.offloaded` runs a model whose
regions run in it; real builds, which the few tests of generated C++ make, differ only in where the
numbers stand. The worker process that runs the rest of the model imports this module, so nothing of
the compiler is imported with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from edgekit.backends.base import Region
from edgekit.backends.registry import load_backend
from edgekit.backends.source import INCLUDE
from edgekit.cross.runtime import ffi_headers
from edgekit.cross.sources import BuiltLibrary, built_in_recipe, find_library
from edgekit.cross.toolchain import find_cxx_compiler
from edgekit.profiles.board import load_board
from edgekit.profiles.toolchain import load_toolchain
from support.compiled_once import compiled_once
from support.needs import require


class _Tensor(ctypes.Structure):
    """DLPack's, as far as the headers read it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def library_here(backend: str) -> BuiltLibrary:
    """The backend's library for this machine, in the user's cache; ncnn-vulkan is a variant."""
    require(backend)
    return _library_here(backend)


@lru_cache
def _library_here(backend: str) -> BuiltLibrary:
    board = load_board("local")
    name, _, variant = backend.partition("-")
    recipe = built_in_recipe(name).as_variant(variant) if variant else built_in_recipe(name)
    library = find_library(recipe, board, load_toolchain(board.toolchain))
    assert library is not None
    return library


def compiled_lab(backend: str) -> ctypes.CDLL:
    """The backend's lab, compiled once for a process."""
    require(backend)
    return _compiled_lab(backend)


@lru_cache
def _compiled_lab(backend: str) -> ctypes.CDLL:
    return compile_lab(backend, library_here(backend).include)


def compile_lab(backend: str, include: Sequence[Path]) -> ctypes.CDLL:
    """BACKEND_lab.cc, which stands beside this file; `include` has the library's headers."""
    library = library_here(backend)
    compiler = find_cxx_compiler(load_toolchain(load_board("local").toolchain))
    name = backend.partition("-")[0]
    own = load_backend(name).include
    out = compiled_once(
        "lab.so",
        compiler,
        ("-std=c++17", "-O2", "-fPIC", "-shared"),
        Path(__file__).with_name(f"{name}_lab.cc"),
        (INCLUDE, *([Path(own)] if own else ()), ffi_headers(), *include),
        (*library.link, *(f"-Wl,-rpath,{file.parent}" for file in library.run_time)),
    )
    loaded = ctypes.CDLL(str(out))
    loaded.lab_problem.restype = ctypes.c_char_p
    return loaded


class Runs(Protocol):
    """A region, wherever it runs."""

    region: Region

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]: ...


class LabRegion:
    """One region in a lab. What sets `runner`, by the lab's `lab_new`, is the backend's own."""

    def __init__(self, region: Region, lab: ctypes.CDLL) -> None:
        self.region = region
        self.lab = lab
        self.runner = ctypes.c_void_p()

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        outputs = [
            aligned(np.full(tensor.shape, 7e33 if tensor.dtype == "float32" else 77, tensor.dtype))
            for tensor in self.region.outputs
        ]
        given = [aligned(value) for value in inputs]
        self.check(self.lab.lab_run(self.runner, tensors(given), tensors(outputs)))
        return outputs

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.lab.lab_problem().decode())

    def __del__(self) -> None:
        if getattr(self, "runner", None):
            self.lab.lab_free(self.runner)


def aligned(values: np.ndarray) -> np.ndarray:
    """Where TVM would have it: at a multiple of 64 bytes; not copied if it is there."""
    if values.ctypes.data % 64 == 0 and values.flags.c_contiguous:
        return values
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def tensors(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    kept = [_Tensor(data=array.ctypes.data) for array in arrays]
    pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(tensor) for tensor in kept))
    pointers.kept = kept
    return pointers
