"""Runtimes with one network loaded, each in a process of its own, that take turns."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.ncnn_alone import Written
from edgekit.devices.local.program import Program

MOST_CALLS = 2000


@dataclass(frozen=True)
class Turn:
    wall: float
    """Median seconds of a call."""
    cpu: float
    """Mean seconds of the processor that a call took."""


class Loaded(Protocol):
    def call(self) -> Any: ...

    def arrays(self, result: Any) -> list[np.ndarray]: ...

    def copied(self) -> int: ...


class Runtime(Protocol):
    """How to load a network; travels to the process that does."""

    def load(self, given: np.ndarray) -> Loaded: ...


@dataclass(frozen=True)
class Bundled:
    """What edgekit built."""

    library: Path
    regions: tuple[str, ...]

    def load(self, given: np.ndarray) -> Loaded:
        return _Library(self, given)


class _Library:
    def __init__(self, bundled: Bundled, given: np.ndarray) -> None:
        self._program = Program(str(bundled.library), 1, print)
        self._copies = ctypes.CDLL(str(bundled.library))
        self._regions = bundled.regions
        self._call = self._program.prepare([aligned(given)])

    def call(self) -> None:
        self._call()

    def arrays(self, result: Any) -> list[np.ndarray]:
        return self._program.outputs()

    def copied(self) -> int:
        return sum(int(self._copies[f"edgekit_copied_{name}"]()) for name in self._regions)


def aligned(values: np.ndarray) -> np.ndarray:
    """Where TVM has its own tensors: at a multiple of 64 bytes."""
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


@dataclass(frozen=True)
class NcnnAlone:
    """The ncnn that edgekit builds, and nothing around it."""

    written: Written
    library: Path

    def load(self, given: np.ndarray) -> Loaded:
        return _Alone(self, given)


class _Alone:
    def __init__(self, runtime: NcnnAlone, given: np.ndarray) -> None:
        self._library = ctypes.CDLL(str(runtime.library))
        self._library.alone_load.restype = ctypes.c_void_p
        written = runtime.written
        words = (written.graph, written.weights, written.input, " ".join(written.outputs))
        loaded = self._library.alone_load(*(str(word).encode() for word in words))
        if not loaded:
            raise RuntimeError("ncnn does not take the network")
        self._network = ctypes.c_void_p(loaded)
        self._count = len(written.outputs)
        self._given = aligned(np.ascontiguousarray(given))
        extents = (1, 1, *written.shape)[-3:]
        self._arguments = (ctypes.c_void_p(self._given.ctypes.data), *extents)

    def call(self) -> Any:
        if self._library.alone_call(self._network, *self._arguments) != 0:
            raise RuntimeError("ncnn failed")

    def arrays(self, result: Any) -> list[np.ndarray]:
        found = []
        for output in range(self._count):
            size = self._library.alone_size(self._network, output)
            found.append(np.empty(size, np.float32))
            to = ctypes.c_void_p(found[-1].ctypes.data)
            self._library.alone_copy(self._network, output, to)
        return found

    def copied(self) -> int:
        return 0


@dataclass(frozen=True)
class NcnnPackage:
    """ncnn's own Python package, with edgekit's options."""

    written: Written

    def load(self, given: np.ndarray) -> Loaded:
        return _Package(self.written, given)


class _Package:
    def __init__(self, written: Written, given: np.ndarray) -> None:
        import ncnn

        self._written = written
        self._net = ncnn.Net()
        self._net.opt.num_threads = 1
        self._net.opt.use_vulkan_compute = False
        self._net.opt.use_fp16_packed = False
        self._net.opt.use_fp16_storage = False
        self._net.opt.use_fp16_arithmetic = False
        self._net.opt.use_bf16_storage = False
        graph, weights = str(written.graph), str(written.weights)
        if self._net.load_param(graph) != 0 or self._net.load_model(weights) != 0:
            raise RuntimeError("ncnn's Python package does not take the network")
        self._image = ncnn.Mat(np.ascontiguousarray(given.reshape(written.shape))).clone()

    def call(self) -> Any:
        extractor = self._net.create_extractor()
        extractor.input(self._written.input, self._image)
        return [extractor.extract(name)[1] for name in self._written.outputs]

    def arrays(self, result: Any) -> list[np.ndarray]:
        return [np.array(mat) for mat in result]

    def copied(self) -> int:
        return 0


@dataclass(frozen=True)
class OnnxRuntime:
    """TVM with its fast kernels and all of its optimisations."""

    model: Path

    def load(self, given: np.ndarray) -> Loaded:
        return _OnnxRuntime(self.model, given)


class _OnnxRuntime:
    def __init__(self, model: Path, given: np.ndarray) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        self._feeds = {self._session.get_inputs()[0].name: given}

    def call(self) -> Any:
        return self._session.run(None, self._feeds)

    def arrays(self, result: Any) -> list[np.ndarray]:
        return list(result)

    def copied(self) -> int:
        return 0


class Process:
    """One runtime on the board."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def outputs(self) -> list[np.ndarray]:
        outputs: list[np.ndarray] = self._ask("outputs")
        return outputs

    def copied(self) -> int:
        return int(self._ask("copied"))

    def turn(self, seconds: float) -> Turn:
        turn: Turn = self._ask("turn", seconds)
        return turn

    def _ask(self, *question: object) -> Any:
        self._pipe.send(question)
        answer = self._pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


@contextmanager
def loaded(runtimes: Mapping[str, Runtime], given: np.ndarray) -> Iterator[dict[str, Process]]:
    """Each in a process of its own, on one thread."""
    context = multiprocessing.get_context("spawn")
    os.environ.update(TVM_NUM_THREADS="1", OMP_NUM_THREADS="1")
    with ExitStack() as stack:
        processes = {}
        for name, runtime in runtimes.items():
            ours, theirs = context.Pipe()
            child = context.Process(target=_serve, args=(theirs, runtime, given), daemon=True)
            child.start()
            theirs.close()
            stack.callback(child.join)
            stack.callback(child.kill)
            processes[name] = Process(ours)
        yield processes


def _serve(pipe: Connection, runtime: Runtime, given: np.ndarray) -> None:
    held = runtime.load(given)
    result = held.call()
    answers: dict[str, Callable[..., object]] = {
        "outputs": lambda: held.arrays(result),
        "copied": held.copied,
        "turn": lambda seconds: _take_turn(held, seconds),
    }
    while True:
        question, *arguments = pipe.recv()
        pipe.send(answers[question](*arguments))


def _take_turn(held: Loaded, seconds: float) -> Turn:
    held.call()  # whoever had the turn before left other things in the processor's caches
    samples: list[float] = []
    began, busy = time.perf_counter(), time.process_time()
    while not samples or (time.perf_counter() - began < seconds and len(samples) < MOST_CALLS):
        started = time.perf_counter()
        result = held.call()
        samples.append(time.perf_counter() - started)
        del result  # its memory goes back outside of the timed part
    return Turn(statistics.median(samples), (time.process_time() - busy) / len(samples))
