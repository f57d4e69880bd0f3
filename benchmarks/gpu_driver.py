"""NVIDIA's driver through ctypes: memory and copies for `benchmarks.gpu_check`."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np


class CudaError(Exception):
    """The error for a call that the driver refused."""


class Driver:
    """The first GPU's primary context, on the calling thread."""

    def __init__(self) -> None:
        name = os.environ.get("EDGEKIT_CUDA_LIBRARY") or "libcuda.so.1"
        self._library: Any = ctypes.CDLL(name)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            word = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(word))
            said = (word.value or b"an unknown error").decode()
            raise CudaError(f"{name} gave {said} (CUDA's error {status})")

    def allocated(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def pinned(self, size: int) -> np.ndarray:
        """Return memory of the host that the GPU reads by itself."""
        address = ctypes.c_void_p()
        self("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(size))
        content = (ctypes.c_uint8 * size).from_address(address.value or 0)
        return np.ctypeslib.as_array(content)

    def free(self, address: ctypes.c_uint64) -> None:
        self("cuMemFree_v2", address)

    def write(self, address: ctypes.c_uint64, array: np.ndarray) -> None:
        place = ctypes.c_void_p(array.ctypes.data)
        self("cuMemcpyHtoD_v2", address, place, ctypes.c_size_t(array.nbytes))

    def read(self, array: np.ndarray, address: ctypes.c_uint64) -> None:
        place = ctypes.c_void_p(array.ctypes.data)
        self("cuMemcpyDtoH_v2", place, address, ctypes.c_size_t(array.nbytes))

    def wait(self) -> None:
        self("cuCtxSynchronize")
