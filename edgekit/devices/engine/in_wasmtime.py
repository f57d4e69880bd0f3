"""A model in wasmtime, called through its Python package."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.base.arrays import Array
from edgekit.devices.engine.program import EngineProgram, ModuleInfo, Tensor

_INTERFACE = 1
_STOPWATCH = """
(module
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock (param i32 i64 i32) (result i32)))
  (import "model" "edgekit_run" (func $run (param i32 i32 i32) (result i32)))
  (import "model" "edgekit_run_step" (func $step (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $now (result i64)
    (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 0)))
    (i64.load (i32.const 0)))
  (func (export "run") (param i32) (result i32 i64) (local i64)
    (local.set 1 (call $now))
    (call $run (local.get 0) (i32.const 0) (i32.const 0))
    (i64.sub (call $now) (local.get 1)))
  (func (export "step") (param i32 i32) (result i32 i64) (local i64)
    (local.set 2 (call $now))
    (call $step (local.get 0) (local.get 1))
    (i64.sub (call $now) (local.get 2))))
"""
"""Measures inside of the engine: a call from Python takes longer than a small model."""


class WasmtimeProgram(EngineProgram):
    def __init__(self, path: str) -> None:
        import wasmtime

        engine = wasmtime.Engine()
        self._store = store = wasmtime.Store(engine)
        store.set_wasi(wasmtime.WasiConfig())
        model = wasmtime.Instance(store, wasmtime.Module.from_file(engine, path), [])
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        linker.define_instance(store, "model", model)
        stopwatch = linker.instantiate(store, wasmtime.Module(engine, _STOPWATCH))
        self._exports: Any = model.exports(store)
        self._stopwatch: Any = stopwatch.exports(store)
        self._call("_initialize")
        self.info = self._read_info()
        self._program = self._call("edgekit_create", 0, 1)
        if not self._program:
            raise MemoryError("the engine has no memory for the model's tensors")

    def write(self, arrays: Sequence[Array]) -> None:
        for place, array in enumerate(arrays):
            address = self._call("edgekit_input", self._program, place)
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._exports["memory"].write(self._store, data.tobytes(), address)

    def run(self) -> int:
        return self._timed("run")

    def run_steps(self) -> Sequence[int]:
        return [self._timed("step", index) for index in range(len(self.info.steps))]

    def outputs(self) -> list[Array]:
        return [
            tensor.array(
                self._bytes(self._call("edgekit_output", self._program, place), tensor.size)
            )
            for place, tensor in enumerate(self.info.outputs)
        ]

    @property
    def memory(self) -> int:
        return int(self._exports["memory"].data_len(self._store))

    def _timed(self, name: str, *arguments: int) -> int:
        status, nanoseconds = self._stopwatch[name](self._store, self._program, *arguments)
        if status:
            raise RuntimeError(self._text(self._call("edgekit_error", self._program)))
        return int(nanoseconds)

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)

    def _bytes(self, address: int, size: int) -> bytearray:
        data: bytearray = self._exports["memory"].read(self._store, address, address + size)
        return data

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self._bytes(address, 4 * count))

    def _text(self, address: int) -> str:
        text = bytearray()
        while 0 not in text:
            text += self._bytes(address + len(text), 1)
        return text[:-1].decode(errors="replace")

    def _read_info(self) -> ModuleInfo:
        interface, _, inputs, outputs, steps, *tables, _, _ = self._words(
            self._call("edgekit_model_info"), 10
        )
        if interface != _INTERFACE:
            raise ValueError(f"its interface has version {interface}, not {_INTERFACE}")
        return ModuleInfo(
            self._tensors(tables[0], inputs),
            self._tensors(tables[1], outputs),
            tuple(self._text(name) for name in self._words(tables[2], steps)),
        )

    def _tensors(self, address: int, count: int) -> tuple[Tensor, ...]:
        found = []
        for place in range(count):
            name, dtype, rank, shape, size = self._words(address + 20 * place, 5)
            extents = struct.unpack(f"<{rank}q", self._bytes(shape, 8 * rank))
            found.append(Tensor(self._text(name), self._text(dtype), extents, size))
        return tuple(found)
