"""The GPUs of NVIDIA's on this machine, as its driver tells them."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

_LIBRARY = "libcuda.so.1"
"""The driver, where EDGEKIT_CUDA_LIBRARY names no other; models look for it in the same way
(aot/native/source/cuda.c)."""
_CAPABILITY = (75, 76)


class NoCudaError(Exception):
    """There is no GPU to run on; the message says why."""


@dataclass(frozen=True)
class CudaDevice:
    name: str
    arch: str
    """The architecture as NVIDIA's compiler takes it."""
    driver: tuple[int, int]
    """The version of CUDA that the driver is of."""

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, CUDA {self.driver[0]}.{self.driver[1]})"


def first_gpu() -> CudaDevice:
    """Return the GPU that models run on; NoCudaError if there is none. This loads the driver, which
    may crash: call it in a process of its own."""
    name = os.environ.get("EDGEKIT_CUDA_LIBRARY") or _LIBRARY
    if "/" in name and not name.startswith("/"):
        raise NoCudaError(f"EDGEKIT_CUDA_LIBRARY is no absolute path: {name}")
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise NoCudaError("no driver of NVIDIA's") from error
    count, version, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    status = library.cuInit(0)
    if status == 0:
        status = library.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        raise NoCudaError(f"the driver has no GPU (CUDA's error {status})")
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGet(ctypes.byref(device), 0)
    text = ctypes.create_string_buffer(128)
    library.cuDeviceGetName(text, len(text), device)
    capability = []
    for attribute in _CAPABILITY:
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(str(value.value))
    driver = version.value // 1000, version.value % 1000 // 10
    return CudaDevice(text.value.decode(errors="replace"), f"sm_{''.join(capability)}", driver)


def in_words() -> str:
    """Return the GPU in words; empty without one."""
    try:
        return str(first_gpu())
    except NoCudaError:
        return ""
