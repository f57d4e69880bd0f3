"""Runs models as `edgekit.devices.local.worker` does; labs of the tests compute their regions.

A request to load a model names a file with its regions, and what makes something callable of each.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.backends.base import Region
from edgekit.devices.local import worker as local_worker
from edgekit.devices.local.frames import Frame


class RegionWorker(local_worker.Worker):
    def load(self, request: Frame) -> None:
        content = Path(request.message["regions"]).read_bytes()
        for make, region, options in pickle.loads(content):
            _serve(region, make(region, options))
        super().load(request)


def _serve(region: Region, compute: Callable[..., Sequence[np.ndarray]]) -> None:
    """Let the runtime find the region by its name."""
    import tvm_ffi

    def call(*given: Any) -> None:
        count = len(region.inputs)
        made = compute(*(local_worker.to_numpy(tensor) for tensor in given[:count]))
        for tensor, wanted, value in zip(given[count:], region.outputs, made, strict=True):
            assert (value.shape, str(value.dtype)) == (wanted.shape, wanted.dtype)
            kept = np.ascontiguousarray(value)
            ctypes.memmove(tensor.data_ptr(), kept.ctypes.data, kept.nbytes)

    tvm_ffi.register_global_func(region.symbol, call, override=True)


if __name__ == "__main__":
    sys.modules["tvm"] = None  # type: ignore[assignment]  # no lab may bring the compiler along
    local_worker.main(sys.argv[1], RegionWorker)
