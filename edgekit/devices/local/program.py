"""A model without a runtime, called through the C interface of its own library."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgekit.base.arrays import Array, numpy_dtype
from edgekit.devices.local.step_times import StepTimes

_INTERFACE = 1
_CALLS_OF_NOTHING = 201


_HEAR = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    ]


class _Info(ctypes.Structure):
    _fields_ = [
        ("interface", ctypes.c_int),
        ("model", ctypes.c_char_p),
        ("inputs", ctypes.c_uint),
        ("outputs", ctypes.c_uint),
        ("steps", ctypes.c_uint),
        ("input", ctypes.POINTER(_Tensor)),
        ("output", ctypes.POINTER(_Tensor)),
        ("step", ctypes.POINTER(ctypes.c_char_p)),
        ("arena_bytes", ctypes.c_size_t),
        ("thread_bytes", ctypes.c_size_t),
    ]


class Program:
    def __init__(self, path: str, threads: int, hear: Callable[[str], None]) -> None:
        self._library = library = ctypes.CDLL(path)
        library.edgekit_model_info.restype = ctypes.POINTER(_Info)
        library.edgekit_create.restype = ctypes.c_void_p
        library.edgekit_create.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.edgekit_run.argtypes = [ctypes.c_void_p] * 3
        library.edgekit_run_step.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        self._on_device = getattr(library, "edgekit_device_nanoseconds", None)
        """Absent in a bundle that an older edgekit built."""
        if self._on_device is not None:
            self._on_device.restype = ctypes.c_longlong
            self._on_device.argtypes = [ctypes.c_void_p]
        library.edgekit_error.restype = ctypes.c_char_p
        library.edgekit_error.argtypes = [ctypes.c_void_p]
        library.edgekit_threads.argtypes = [ctypes.c_void_p]
        for function in (library.edgekit_input, library.edgekit_output):
            function.restype = ctypes.c_void_p
            function.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        self._info = library.edgekit_model_info().contents
        if self._info.interface != _INTERFACE:
            raise ValueError(f"its interface has version {self._info.interface}, not {_INTERFACE}")
        self._listener = _HEAR(lambda text: hear(text.decode(errors="replace")))
        library.edgekit_on_progress(self._listener)
        self._program = library.edgekit_create(None, threads)
        if not self._program:
            raise MemoryError(f"there is no memory for {self._info.arena_bytes} bytes of tensors")
        self.threads = int(library.edgekit_threads(self._program))

    def prepare(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """Return a function that runs the model on these inputs and returns its nanoseconds."""
        self._check(arrays)
        given = (ctypes.c_void_p * (len(arrays) + 1))()
        for place, array in enumerate(arrays):
            given[place] = array.ctypes.data
        run, program = self._library.edgekit_run, self._program

        def call(kept: Any = tuple(arrays)) -> int:
            del kept
            started = time.perf_counter_ns()
            status = run(program, given, None)
            taken = time.perf_counter_ns() - started
            if status:
                raise RuntimeError(self._error())
            return taken

        return call

    def outputs(self) -> list[Array]:
        """Return copies of the outputs of the last run."""
        return [
            self._array(
                self._info.output[place], self._library.edgekit_output(self._program, place)
            )
            for place in range(self._info.outputs)
        ]

    def profile(
        self, arrays: Sequence[Array], inferences: int, traced: int, done: Callable[[int], None]
    ) -> dict[str, object]:
        """Return the median time of each step, and a timeline of the first `traced` inferences."""
        self._check(arrays)
        steps = range(self._info.steps)
        started, taken, on_device = np.zeros((3, inferences, len(steps)), np.int64)
        whole = np.zeros(inferences, np.int64)
        cost = self._cost_of_a_call()
        step = self._library.edgekit_run_step
        for inference in range(inferences):
            began = time.perf_counter_ns()
            for place, array in enumerate(arrays):
                own = self._library.edgekit_input(self._program, place)
                ctypes.memmove(own, array.ctypes.data, array.nbytes)
            for index in steps:
                start = time.perf_counter_ns()
                status = step(self._program, index)
                taken[inference, index] = time.perf_counter_ns() - start
                started[inference, index] = start - began
                if self._on_device is not None:
                    on_device[inference, index] = self._on_device(self._program)
                if status:
                    raise RuntimeError(self._error())
            whole[inference] = time.perf_counter_ns() - began
            done(inference + 1)
        names = [self._info.step[index].decode() for index in steps]
        taken = np.maximum(taken - cost, 0)
        return StepTimes(names, started, taken, whole, on_device).answer(traced)

    def _cost_of_a_call(self) -> int:
        """Return the nanoseconds that a call through ctypes and the clock add to each step: the
        median for a function that does nothing."""
        nothing, program = self._library.edgekit_threads, self._program
        taken = np.zeros(_CALLS_OF_NOTHING, np.int64)
        for place in range(_CALLS_OF_NOTHING):
            start = time.perf_counter_ns()
            nothing(program)
            taken[place] = time.perf_counter_ns() - start
        return int(np.median(taken))

    def _check(self, arrays: Sequence[Array]) -> None:
        """Refuse inputs of another size or type: the library would read beyond them."""
        specs = [self._info.input[place] for place in range(self._info.inputs)]
        if len(arrays) != len(specs):
            raise ValueError(f"the model takes {len(specs)} inputs, not {len(arrays)}")
        for spec, array in zip(specs, arrays, strict=True):
            shape, dtype = _shape(spec), numpy_dtype(spec.dtype.decode())
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise ValueError(
                    f"input {spec.name.decode()} is {array.dtype} {array.shape}, "
                    f"not {dtype} {shape}"
                )

    def _error(self) -> str:
        return str(self._library.edgekit_error(self._program).decode(errors="replace"))

    @staticmethod
    def _array(spec: Any, address: int) -> Array:
        data = ctypes.string_at(address, spec.bytes)
        return np.frombuffer(data, numpy_dtype(spec.dtype.decode())).reshape(_shape(spec))


def _shape(spec: Any) -> tuple[int, ...]:
    return tuple(spec.shape[place] for place in range(spec.rank))
