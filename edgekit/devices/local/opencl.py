"""The devices of this machine that run kernels in OpenCL."""

from __future__ import annotations

import ctypes
import os

_LIBRARY = "libOpenCL.so.1"
"""The library, where EDGEKIT_OPENCL_LIBRARY names no other; models look for it in the same way
(aot/native/source/opencl.c)."""
_NAME = 0x102B
_CPUS_GPUS_AND_ACCELERATORS = ctypes.c_uint64(2 | 4 | 8)
_MOST = 16


def in_words() -> str:
    """Return the names of all devices; empty without OpenCL."""
    return ", ".join(device_names())


def device_names() -> tuple[str, ...]:
    """Return the names of all devices; none if there is no OpenCL. This loads drivers, which may
    crash: call it in a process of its own."""
    name = os.environ.get("EDGEKIT_OPENCL_LIBRARY") or _LIBRARY
    if "/" in name and not name.startswith("/"):
        return ()
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return ()
    found, count = (ctypes.c_void_p * _MOST)(), ctypes.c_uint(0)
    library.clGetPlatformIDs(_MOST, found, ctypes.byref(count))
    names: list[str] = []
    for platform in found[: min(count.value, _MOST)]:
        devices, made = (ctypes.c_void_p * _MOST)(), ctypes.c_uint(0)
        library.clGetDeviceIDs(
            ctypes.c_void_p(platform),
            *(_CPUS_GPUS_AND_ACCELERATORS, _MOST, devices, ctypes.byref(made)),
        )
        for device in devices[: min(made.value, _MOST)]:
            text = ctypes.create_string_buffer(128)
            size = ctypes.c_size_t(len(text))
            library.clGetDeviceInfo(ctypes.c_void_p(device), _NAME, size, text, None)
            names.append(text.value.decode(errors="replace"))
    return tuple(names)
