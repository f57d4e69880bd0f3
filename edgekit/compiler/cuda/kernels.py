"""Compile CUDA C++ to machine code for one GPU with NVIDIA's compiler library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.compiler.cuda.toolkit import find_toolkit, load_cuda_runtime

_CALLBACK = "tvm_callback_cuda_compile"
_PRECISE = ("--ftz=false", "--prec-div=true", "--prec-sqrt=true")
"""Options that undo most of the fast mathematics that TVM requests."""


@contextmanager
def compiling_kernels(arch: str) -> Iterator[None]:
    """Compile the CUDA code that TVM generates inside this context to machine code for `arch`."""
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

    previous = tvm_ffi.get_global_func(_CALLBACK)
    tvm_ffi.register_global_func(_CALLBACK, compiled, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_CALLBACK, previous, override=True)


@contextmanager
def _cuda_path(root: Path) -> Iterator[None]:
    """Set the only variable in which TVM looks for CUDA."""
    before = os.environ.get("CUDA_PATH")
    os.environ["CUDA_PATH"] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_PATH"]
        else:
            os.environ["CUDA_PATH"] = before
