"""Runs models as `edgekit.devices.local.worker` does; labs of the tests compute their regions.

A request to load a model names a file with its regions, and what makes something callable of each.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.backends.base import Region, Tensor
from edgekit.base.arrays import numpy_dtype
from edgekit.devices.local import worker as local_worker
from edgekit.devices.local.frames import Frame
from edgekit.devices.local.machine import to_numpy


class RegionWorker(local_worker.Worker):
    def load(self, request: Frame) -> None:
        content = Path(request.message["regions"]).read_bytes()
        for make, region, options in pickle.loads(content):
            _serve(region, make(region, options))
        super().load(request)


_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_size_t,
)
_calls: list[Any] = []
"""The functions that libraries call, which must outlive them."""


def _serve(region: Region, compute: Callable[..., Sequence[np.ndarray]]) -> None:
    """Let the library find the region: TVM's machine by its name, a program by its address."""
    import tvm_ffi

    def fill(given: Sequence[np.ndarray], made: Sequence[int]) -> None:
        values = compute(*given)
        for address, wanted, value in zip(made, region.outputs, values, strict=True):
            assert (value.shape, str(value.dtype)) == (wanted.shape, wanted.dtype)
            kept = np.ascontiguousarray(value)
            ctypes.memmove(address, kept.ctypes.data, kept.nbytes)

    def call(*given: Any) -> None:
        count = len(region.inputs)
        arrays = [to_numpy(tensor) for tensor in given[:count]]
        fill(arrays, [tensor.data_ptr() for tensor in given[count:]])

    def call_from_c(given: Any, made: Any, why: int, size: int) -> int:
        try:
            arrays = [_array(given[k], tensor) for k, tensor in enumerate(region.inputs)]
            fill(arrays, [made[k] for k in range(len(region.outputs))])
        except Exception as error:  # noqa: BLE001 - C hears of it
            text = f"{type(error).__name__}: {error}".encode()[: size - 1] + b"\0"
            ctypes.memmove(why, text, len(text))
            return 1
        return 0

    tvm_ffi.register_global_func(region.symbol, call, override=True)
    _calls.append(_CALL(call_from_c))
    os.environ[region.symbol] = str(ctypes.cast(_calls[-1], ctypes.c_void_p).value)


def _array(address: int, tensor: Tensor) -> np.ndarray:
    dtype = numpy_dtype(tensor.dtype)
    size = math.prod(tensor.shape) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype).reshape(tensor.shape)


if __name__ == "__main__":
    sys.modules["tvm"] = None  # type: ignore[assignment]  # no lab may bring the compiler along
    local_worker.main(sys.argv[1], RegionWorker)
