"""From CUDA's C++ to machine code of one GPU, by NVIDIA's own compiler as a library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgekit.compiler.cuda.toolkit import find_toolkit, load_cuda_runtime

if TYPE_CHECKING:
    from pathlib import Path

_CALLBACK = "tvm_callback_cuda_compile"
_PRECISE = ("--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""TVM asks for fast mathematics; this much of it is taken back."""


@contextmanager
def compiling_kernels(arch: str) -> Iterator[None]:
    """While this is open, whatever TVM generates for CUDA becomes machine code for `arch`."""
    import tvm_ffi
    from tvm.support.nvcc import compile_cuda

    load_cuda_runtime()
    toolkit = find_toolkit()
    options = [*_PRECISE, f"-I{toolkit.include / 'cccl'}"]

    def compiled(code: str) -> bytes:
        with _cuda_path(toolkit.root):
            cubin = compile_cuda(
                code, target_format="cubin", arch=arch, options=options, compiler="nvrtc"
            )
        return bytes(cubin)

    theirs = tvm_ffi.get_global_func(_CALLBACK)
    tvm_ffi.register_global_func(_CALLBACK, compiled, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_CALLBACK, theirs, override=True)


@contextmanager
def _cuda_path(root: Path) -> Iterator[None]:
    """TVM looks nowhere else."""
    before = os.environ.get("CUDA_PATH")
    os.environ["CUDA_PATH"] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_PATH"]
        else:
            os.environ["CUDA_PATH"] = before
