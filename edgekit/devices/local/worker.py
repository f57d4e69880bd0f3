"""Runs one bundle's model in a process of its own, so that only this process dies with it.

`edgekit.devices.local.worker TVM_RUNTIME`, run as a module, serves frames on stdin and stdout
until stdin closes. It loads TVM's small runtime library where a model needs it, and never the
compiler.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np

from edgekit.base import metrics
from edgekit.base.arrays import Array
from edgekit.base.child import Channel
from edgekit.cross.library_code import is_program
from edgekit.devices.base import MOST_RUNS
from edgekit.devices.linux.region_work import WORKING
from edgekit.devices.local.frames import Frame, encode_frame, read_frame
from edgekit.devices.local.machine import Machine, load_runtime
from edgekit.devices.local.program import Program

_SECONDS_BETWEEN_PROGRESS = 0.2


def main(runtime_library: str, kind: type[Worker] | None = None) -> None:
    """Serve until stdin closes; tests give an extended `kind` of Worker."""
    channel = Channel()
    _let_idle_threads_sleep()
    worker = (kind or Worker)(channel, runtime_library)
    while True:
        worker.answer(read_frame(channel.fill))


class Model(Protocol):
    """A loaded model, in any form."""

    @property
    def threads(self) -> int: ...

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """Return a function that runs the model on these inputs and returns its nanoseconds."""
        ...

    def outputs(self) -> list[Array]: ...

    def profile(
        self, arrays: Sequence[Array], inferences: int, traced: int, done: Callable[[int], None]
    ) -> dict[str, object]:
        """Return the time of each kernel, and a timeline of the first `traced` inferences."""
        ...


class Worker:
    def __init__(self, channel: Channel, runtime_library: str) -> None:
        self._channel = channel
        self._runtime_library = runtime_library
        self._cores = metrics.usable_cores()
        self._model: Model | None = None
        self._models: list[Model] = []
        self._memory_before: int | None = None

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
        self._model = self._loaded(str(request.message["library"]))
        # A model loaded before stays: threads may still run its code.
        self._models.append(self._model)
        nanoseconds = time.perf_counter_ns() - started
        self._send({"nanoseconds": nanoseconds, "threads": self._model.threads})

    def _loaded(self, path: str) -> Model:
        if is_program(Path(path)):
            return Program(path, int(os.environ.get("TVM_NUM_THREADS", "0")), self._hear)
        return Machine(self._runtime(), path)

    def _runtime(self) -> ModuleType:
        ffi = load_runtime(self._runtime_library)
        ffi.register_global_func("edgekit.progress", self._hear, override=True)
        return ffi

    def _run(self, request: Frame) -> None:
        assert self._model is not None
        nanoseconds = self._model.prepare(request.arrays)()
        self._send({"nanoseconds": nanoseconds}, self._model.outputs())

    def _bench(self, request: Frame) -> None:
        assert self._model is not None
        call = self._model.prepare(request.arrays)
        warmup, runs = int(request.message["warmup"]), int(request.message["runs"])
        progress = _Progress(self._send)
        host_before = metrics.read_host_state(self._cores)
        for done in range(warmup):
            call()
            progress.report("warm-up", done + 1)
        peak: int | None = None
        preemptions = _preemptions()
        samples = array("q")
        enough = time.perf_counter() + float(request.message["seconds"])
        while len(samples) < MOST_RUNS:
            samples.append(call())
            if len(samples) == 1:
                peak = self._memory_peak()  # later, our samples would count as the model's memory
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
            answer |= self._model.profile(
                request.arrays,
                profiled,
                int(request.message["traced"]),
                lambda done: progress.report("profiling", done),
            )
        self._send(answer, [np.frombuffer(samples, np.int64)])

    def _memory_peak(self) -> int | None:
        return metrics.memory_peak()

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


def _preemptions() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _let_idle_threads_sleep() -> None:
    """Make OpenMP's idle threads sleep at once, as the agent on a board does; else they spin
    300,000 times first. OpenMP reads these variables when the model's library is loaded."""
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="1000")


if __name__ == "__main__":
    main(sys.argv[1])
