"""Runs one bundle's model in a process of its own, so that only this process dies with it.

`edgekit.devices.local.worker TVM_RUNTIME`, run as a module, serves frames on stdin and stdout
until stdin closes. It loads TVM's small runtime library and never the compiler.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

import numpy as np

from edgekit.base import metrics
from edgekit.base.arrays import Array, numpy_dtype
from edgekit.base.child import Channel
from edgekit.devices.base import MOST_RUNS
from edgekit.devices.linux.region_work import WORKING
from edgekit.devices.local.dlpack import DlpackArray
from edgekit.devices.local.frames import Frame, encode_frame, read_frame
from edgekit.devices.local.kernel_stopwatch import KernelStopwatch

_CPU = 1
_POOLED_ALLOCATOR = 2
_SECONDS_BETWEEN_PROGRESS = 0.2


def main(runtime_library: str, kind: type[Worker] | None = None) -> None:
    """Serve until stdin closes; tests give an extended `kind` of Worker."""
    channel = Channel()
    _let_idle_threads_sleep()
    worker = (kind or Worker)(channel, _load_runtime(runtime_library))
    while True:
        worker.answer(read_frame(channel.fill))


class Worker:
    def __init__(self, channel: Channel, ffi: ModuleType) -> None:
        self._channel = channel
        self._ffi = ffi
        self._cores = metrics.usable_cores()
        self._main: Callable[..., Any] | None = None
        self._set_instrument: Callable[..., Any] | None = None
        self._kept: tuple[object, ...] = ()
        self._memory_before: int | None = None
        ffi.register_global_func("edgekit.progress", self._hear, override=True)

    def _hear(self, text: str) -> None:
        """Forward a message of a region that takes long, from any of its threads."""
        self._send({"progress": 0, WORKING: text})

    def answer(self, request: Frame) -> None:
        serve = {"load": self.load, "run": self._run, "bench": self._bench}
        try:
            serve[request.message["do"]](request)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            self._send({"error": str(error) or type(error).__name__, "kind": type(error).__name__})

    def load(self, request: Frame) -> None:
        if metrics.reset_peak_memory():
            self._memory_before = metrics.memory_now()
        started = time.perf_counter_ns()
        library = self._ffi.load_module(request.message["library"])
        machine = library.get_function("vm_load_executable")()
        machine.get_function("vm_initialization")(_CPU, 0, _POOLED_ALLOCATOR)
        # A library loaded before stays: threads of the runtime may still run its code.
        self._kept = (*self._kept, library, machine)
        self._main = machine.get_function("main")
        self._set_instrument = machine.get_function("set_instrument")
        threads = self._ffi.get_global_func("runtime.NumThreads")()
        self._send({"nanoseconds": time.perf_counter_ns() - started, "threads": int(threads)})

    def _run(self, request: Frame) -> None:
        assert self._main is not None
        arguments = [DlpackArray(values) for values in request.arrays]
        tensors = [self._ffi.from_dlpack(argument) for argument in arguments]
        started = time.perf_counter_ns()
        result = self._main(*tensors)
        nanoseconds = time.perf_counter_ns() - started
        self._send(
            {"nanoseconds": nanoseconds}, [to_numpy(tensor) for tensor in self._flat(result)]
        )

    def _bench(self, request: Frame) -> None:
        assert self._main is not None
        call = self._main
        arguments = [DlpackArray(values) for values in request.arrays]
        tensors = [self._ffi.from_dlpack(argument) for argument in arguments]
        warmup, runs = int(request.message["warmup"]), int(request.message["runs"])
        progress = _Progress(self._send)
        host_before = metrics.read_host_state(self._cores)
        for done in range(warmup):
            call(*tensors)
            progress.report("warm-up", done + 1)
        peak: int | None = None
        preemptions = _preemptions()
        samples = array("q")
        enough = time.perf_counter() + float(request.message["seconds"])
        while len(samples) < MOST_RUNS:
            started = time.perf_counter_ns()
            result = call(*tensors)
            ended = time.perf_counter_ns()
            del result  # frees its memory outside of the timed part
            samples.append(ended - started)
            if len(samples) == 1:
                peak = metrics.memory_peak()  # later, our samples would count as the model's memory
            if len(samples) >= runs and time.perf_counter() >= enough:
                break
            progress.report("measuring", len(samples))
        answer: dict[str, object] = {
            "warmup": warmup,
            "memory_before": self._memory_before,
            "memory_peak": None if self._memory_before is None else peak,
            "preemptions": _preemptions() - preemptions,
            "host_before": vars(host_before),
            "host_after": vars(metrics.read_host_state(self._cores)),
        }
        if profiled := int(request.message["profiled"]):
            answer["profiled"] = profiled
            answer["kernels"] = self._profile(tensors, profiled, progress)
        self._send(answer, [np.frombuffer(samples, np.int64)])

    def _profile(
        self, tensors: list[Any], inferences: int, progress: _Progress
    ) -> list[dict[str, object]]:
        assert self._main is not None
        assert self._set_instrument is not None
        stopwatch = KernelStopwatch()
        self._set_instrument(self._ffi.convert(stopwatch.called))
        for done in range(inferences):
            stopwatch.begin_inference()
            self._main(*tensors)
            progress.report("profiling", done + 1)
        return stopwatch.report()

    def _flat(self, result: Any) -> list[Any]:
        """Return the tensors of a result, which is a tensor or nested arrays of them."""
        if isinstance(result, self._ffi.Tensor):
            return [result]
        return [tensor for part in result for tensor in self._flat(part)]

    def _send(self, message: Mapping[str, object], arrays: list[Array] | None = None) -> None:
        self._channel.write(encode_frame(message, arrays or []))


class _Progress:
    """Reports a measurement's progress, seldom enough not to disturb it."""

    def __init__(self, send: Callable[[Mapping[str, object]], None]) -> None:
        self._send = send
        self._next = time.monotonic() + _SECONDS_BETWEEN_PROGRESS

    def report(self, phase: str, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_PROGRESS
            self._send({"progress": done, "phase": phase})


def to_numpy(tensor: Any) -> Array:
    # Read by address: numpy's DLPack does not support bfloat16.
    if not tensor.is_contiguous():
        raise ValueError("the model returned a tensor that is not contiguous")
    dtype = numpy_dtype(str(tensor.dtype))
    shape = tuple(int(extent) for extent in tensor.shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = ctypes.string_at(tensor.data_ptr(), size) if size else b""
    return np.frombuffer(data, dtype).reshape(shape)


def _preemptions() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _load_runtime(library: str) -> ModuleType:
    # tvm_ffi would import an installed torch, which takes a second and is not needed.
    sys.modules["torch"] = None  # type: ignore[assignment]
    import tvm_ffi

    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    return cast(ModuleType, tvm_ffi)


def _let_idle_threads_sleep() -> None:
    """Make OpenMP's idle threads sleep at once, as the agent on a board does; else they spin
    300,000 times first. OpenMP reads these variables when the model's library is loaded."""
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="1000")


if __name__ == "__main__":
    main(sys.argv[1])
