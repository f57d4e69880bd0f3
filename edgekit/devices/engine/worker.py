"""Runs one bundle's model in an engine, in a process of its own.

`edgekit.devices.engine.worker ENGINE PROGRAM`, run as a module, serves frames as the worker of this
machine does. PROGRAM is the engine's program, or empty where the engine is a Python package.
"""

from __future__ import annotations

import sys

from edgekit.devices.engine.in_node import NodeProgram
from edgekit.devices.engine.in_wasmtime import WasmtimeProgram
from edgekit.devices.engine.program import EngineProgram
from edgekit.devices.local.frames import Frame
from edgekit.devices.local.worker import Worker, main


class EngineWorker(Worker):
    _model: EngineProgram | None = None

    def load(self, request: Frame) -> None:
        super().load(request)
        self._memory_before = 0

    def _loaded(self, path: str) -> EngineProgram:
        engine, program = sys.argv[1:]
        return NodeProgram(path, program) if engine == "node" else WasmtimeProgram(path)

    def _memory_peak(self) -> int | None:
        """Return the bytes of the module's memory: the process has the engine's compiler too."""
        return None if self._model is None else self._model.memory


if __name__ == "__main__":
    main("", EngineWorker)
