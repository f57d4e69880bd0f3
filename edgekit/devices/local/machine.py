"""A model for TVM's virtual machine, called through TVM's small runtime library."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, cast

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.devices.local.dlpack import DlpackArray

_CPU = 1
_POOLED_ALLOCATOR = 2


class Machine:
    def __init__(self, ffi: ModuleType, library: str) -> None:
        self._ffi = ffi
        self._library = ffi.load_module(library)
        self._machine = self._library.get_function("vm_load_executable")()
        self._machine.get_function("vm_initialization")(_CPU, 0, _POOLED_ALLOCATOR)
        self._main = self._machine.get_function("main")
        self._result: Any = None
        self.threads = int(ffi.get_global_func("runtime.NumThreads")())

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """Return a function that runs the model on these inputs and returns its nanoseconds."""
        tensors = [self._ffi.from_dlpack(DlpackArray(values)) for values in arrays]

        def call() -> int:
            started = time.perf_counter_ns()
            self._result = None  # frees its memory
            self._result = self._main(*tensors)
            return time.perf_counter_ns() - started

        return call

    def outputs(self) -> list[Array]:
        """Return copies of the outputs of the last run."""
        return [to_numpy(tensor) for tensor in self._flat(self._result)]

    def profile(
        self, arrays: Sequence[Array], inferences: int, traced: int, done: Callable[[int], None]
    ) -> dict[str, object]:
        """Return the time of each kernel, and a timeline of the first `traced` inferences."""
        stopwatch = KernelStopwatch(traced)
        self._machine.get_function("set_instrument")(self._ffi.convert(stopwatch.called))
        call = self.prepare(arrays)
        for inference in range(inferences):
            stopwatch.begin_inference()
            call()
            stopwatch.end_inference()
            done(inference + 1)
        return {"kernels": stopwatch.report(), "timeline": stopwatch.timeline()}

    def _flat(self, result: Any) -> list[Any]:
        """Return the tensors of a result, which is a tensor or nested arrays of them."""
        if isinstance(result, self._ffi.Tensor):
            return [result]
        return [tensor for part in result for tensor in self._flat(part)]


def to_numpy(tensor: Any) -> Array:
    # Read by address: numpy's DLPack does not support bfloat16.
    if not tensor.is_contiguous():
        raise ValueError("the model returned a tensor that is not contiguous")
    dtype = numpy_dtype(str(tensor.dtype))
    shape = tuple(int(extent) for extent in tensor.shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = ctypes.string_at(tensor.data_ptr(), size) if size else b""
    return np.frombuffer(data, dtype).reshape(shape)


def load_runtime(library: str) -> ModuleType:
    # tvm_ffi would import an installed torch, which takes a second and is not needed.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi

    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    return cast(ModuleType, tvm_ffi)


_GO_ON = 0


class KernelStopwatch:
    """Times kernels. A kernel's time excludes the kernels that it calls."""

    def __init__(self, traced: int = 0) -> None:
        self._traced = traced
        self._began = 0
        self._wholes: list[int] = []
        self._events: list[list[tuple[int, int, str]]] = []
        """Start, duration and name of each call, by traced inference."""
        self._calls: Counter[str] = Counter()
        self._inferences: list[Counter[str]] = []
        """Time of each kernel, by inference."""
        self._open: list[list[int]] = []
        """Start of each open call, and the time spent in the kernels that it called."""

    def begin_inference(self) -> None:
        self._inferences.append(Counter())
        if len(self._events) < self._traced:
            self._events.append([])
        self._began = time.perf_counter_ns()

    def end_inference(self) -> None:
        self._wholes.append(time.perf_counter_ns() - self._began)

    def called(self, function: object, name: str, before: bool, *rest: object) -> int:
        """Record a call's start or end; the instrument of TVM's virtual machine."""
        ended = time.perf_counter_ns()
        if before:
            self._open.append([time.perf_counter_ns(), 0])
            return _GO_ON
        started, others = self._open.pop()
        if self._open:
            self._open[-1][1] += ended - started
        self._calls[name] += 1
        self._inferences[-1][name] += ended - started - others
        if len(self._inferences) <= self._traced:
            self._events[-1].append((started - self._began, ended - started, name))
        return _GO_ON

    def report(self) -> list[dict[str, object]]:
        """Return the times in the form that the agent on a board sends."""
        return [
            {
                "name": name,
                "calls": calls,
                "nanoseconds": int(statistics.median(taken[name] for taken in self._inferences)),
            }
            for name, calls in self._calls.items()
        ]

    def timeline(self) -> list[dict[str, object]]:
        """Return the calls of the traced inferences, by their start."""
        places = {name: place for place, name in enumerate(self._calls)}
        return [
            {
                "nanoseconds": whole,
                "kernels": [places[name] for _, _, name in sorted(events)],
                "starts": [start for start, _, _ in sorted(events)],
                "durations": [taken for _, taken, _ in sorted(events)],
            }
            for whole, events in zip(self._wholes, self._events, strict=False)
        ]
