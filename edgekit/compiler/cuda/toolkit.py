"""The host's parts for compiling CUDA: NVIDIA's compiler and headers from packages, and a driver or
a stub.

TVM embeds GPU machine code only where its CUDA runtime is loaded, and that needs the driver's
library. On a host without a driver, a stub library whose functions all fail is enough: nothing runs
on the host's GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgekit.base.errors import MissingToolError
from edgekit.base.tvm_compat import load_tvm
from edgekit.cross.runtime import CUDA_RUNTIME, package_folder
from edgekit.cross.toolchain import find_compiler
from edgekit.cross.tools import run_tool
from edgekit.profiles.toolchain import load_toolchain

PACKAGES = ("cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
"""Packages whose versions decide the kernels' bytes: part of each build's key (building/key.py)."""
CUDART = "libcudart.so.13"
"""The runtime library that TVM's CUDA runtime needs: the CUDA version that a board must have."""
_DRIVER = "libcuda.so.1"
_FUNCTIONS = (
    *("cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString"),
    *("cuLaunchKernelEx", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload"),
    "cuTensorMapEncodeTiled",
)
_STUB_LIBRARY = 34
"""CUDA_ERROR_STUB_LIBRARY"""


@dataclass(frozen=True)
class Toolkit:
    root: Path
    """The folder that holds `include` and `lib`."""

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def cudart(self) -> Path:
        return self.root / "lib" / CUDART

    @property
    def compiler(self) -> tuple[Path, ...]:
        """The libraries to load before the compiler, which does not search its own folder."""
        folder = self.root / "lib"
        return (*sorted(folder.glob("libnvrtc-builtins.so.13.*")), folder / "libnvrtc.so.13")


def find_toolkit(folders: Sequence[Path] | None = None) -> Toolkit:
    """Find NVIDIA's packages; raise MissingToolError with what to install."""
    for folder in _folders_of("nvidia") if folders is None else folders:
        toolkit = Toolkit(folder / "cu13")
        wanted = (
            toolkit.cudart,
            toolkit.include / "cuda_runtime.h",
            toolkit.include / "cccl" / "cuda" / "std" / "cstdint",
            toolkit.root / "lib" / "libnvrtc.so.13",
        )
        if all(path.exists() for path in wanted) and _folders_of("cuda.bindings"):
            return toolkit
    raise MissingToolError(
        f"compiling for CUDA needs the packages {', '.join(PACKAGES)}, of CUDA 13",
        hint="pip install 'edgekit[cuda]'",
    )


@lru_cache(maxsize=1)
def load_cuda_runtime() -> None:
    """Load TVM's CUDA runtime into this process, with a stub driver where there is none."""
    load_tvm()
    toolkit = find_toolkit()
    try:
        ctypes.CDLL(_DRIVER, ctypes.RTLD_GLOBAL)
    except OSError:
        _load_driver_stub()
    try:
        for library in (toolkit.cudart, *toolkit.compiler):
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(package_folder("tvm") / "lib" / CUDA_RUNTIME))
    except OSError as error:
        raise MissingToolError(
            f"TVM's runtime for CUDA does not load: {error}",
            hint="pip install --force-reinstall 'edgekit[cuda]' installs matching packages",
        ) from error


def make_driver_stub(folder: Path) -> Path:
    """Build a stub library with the driver's name in `folder`, with the host's compiler."""
    compiler = find_compiler(load_toolchain("host"))
    (folder / "stub.c").write_text(stub_source(), encoding="ascii")
    run_tool(
        (*compiler.command, "-shared", f"-Wl,-soname,{_DRIVER}", "stub.c", "-o", _DRIVER),
        folder=folder,
        doing="make a stand-in for NVIDIA's driver",
    )
    return folder / _DRIVER


def stub_source() -> str:
    """Return C that defines the driver's functions and does nothing."""
    lines = [f"int {name}(void) {{ return {_STUB_LIBRARY}; }}" for name in _FUNCTIONS]
    return "\n".join(lines) + "\n"


def _load_driver_stub() -> None:
    with tempfile.TemporaryDirectory(prefix="edgekit-cuda-") as folder:
        ctypes.CDLL(str(make_driver_stub(Path(folder))), ctypes.RTLD_GLOBAL)


def _folders_of(package: str) -> list[Path]:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    return [Path(folder) for folder in (found.submodule_search_locations or ())] if found else []
