"""Compile CUDA's C++ for one GPU, or for it and all newer ones, with NVIDIA's compiler library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from edgekit.base.errors import BuildError, MissingToolError
from edgekit.compiler.cuda.toolkit import find_toolkit

_OPTIONS = (
    "-default-device",
    "--device-int128",
    "--std=c++17",
    # As precise as the CPU's.
    *("--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
)
_PREAMBLE = """\
#include <cuda/std/limits>
#define INFINITY (::cuda::std::numeric_limits<float>::infinity())
#define NAN (::cuda::std::numeric_limits<float>::quiet_NaN())
"""
_FAULT = "this is a fault of edgekit: please report it with the model"


def compile_cuda(source: str, arch: str) -> bytes:
    """Return machine code for "sm_87"; for "compute_75" PTX, which a GPU's driver compiles."""
    toolkit = find_toolkit()
    options = [
        f"--gpu-architecture={arch}",
        f"-I{toolkit.include}",
        f"-I{toolkit.include / 'cccl'}",
        *_OPTIONS,
    ]
    library = _library()
    program = ctypes.c_void_p()
    text = (_PREAMBLE + source).encode("ascii")
    _check(
        library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None),
        "take the kernels",
    )
    try:
        words = (ctypes.c_char_p * len(options))(*(word.encode() for word in options))
        status = library.nvrtcCompileProgram(program, len(options), words)
        log = _taken(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
        if status:
            lines = log.rstrip(b"\0").decode(errors="replace").splitlines()
            first = next((line for line in lines if "error" in line), f"error {status}")
            raise BuildError(
                f"NVIDIA's compiler does not compile the kernels for {arch}: {first}",
                hint=_FAULT,
                details=tuple(lines[:20]),
            )
        if arch.startswith("sm_"):
            return _taken(program, library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
        return _taken(program, library.nvrtcGetPTXSize, library.nvrtcGetPTX)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _taken(program: Any, size_of: Callable[..., int], take: Callable[..., int]) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)), "tell the size of its result")
    result = ctypes.create_string_buffer(size.value)
    _check(take(program, result), "give its result")
    return result.raw


def _check(status: int, doing: str) -> None:
    if status:
        raise BuildError(f"NVIDIA's compiler failed to {doing}: error {status}", hint=_FAULT)


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        *_, library = (
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL) for path in find_toolkit().compiler
        )
    except OSError as error:
        raise MissingToolError(
            f"NVIDIA's compiler does not load: {error}",
            hint="pip install --force-reinstall 'edgekit[cuda]' installs matching packages",
        ) from error
    return library
