"""A model in Node.js, whose engine is that of Chromium. It runs in a process of its own."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.base.arrays import Array
from edgekit.base.children import NEUTRAL_FOLDER, PIPE, Streams, start
from edgekit.base.parent_process import ending_with_us
from edgekit.devices.engine.program import EngineProgram, ModuleInfo, Tensor

_STDERR = 2
_WORKER = Path(__file__).with_name("node_worker.mjs")


class NodeProgram(EngineProgram):
    def __init__(self, path: str, node: str) -> None:
        command = ending_with_us([node, str(_WORKER)])
        streams = Streams(PIPE, errors=_STDERR)
        self._process = start(command, folder=NEUTRAL_FOLDER, streams=streams)
        answer, _ = self._ask({"do": "load", "module": path})
        self.info = ModuleInfo(
            _tensors(answer["inputs"]), _tensors(answer["outputs"]), tuple(answer["steps"])
        )
        self._memory = 0

    def write(self, arrays: Sequence[Array]) -> None:
        payloads = [np.ascontiguousarray(array).tobytes() for array in arrays]
        self._ask({"do": "inputs"}, payloads)

    def run(self) -> int:
        answer, _ = self._ask({"do": "run"})
        self._memory = int(answer["memory"])
        return int(answer["nanoseconds"])

    def run_steps(self) -> Sequence[int]:
        answer, _ = self._ask({"do": "profile"})
        return [int(nanoseconds) for nanoseconds in answer["nanoseconds"]]

    def outputs(self) -> list[Array]:
        _, payloads = self._ask({"do": "outputs"})
        return [
            tensor.array(data) for tensor, data in zip(self.info.outputs, payloads, strict=True)
        ]

    @property
    def memory(self) -> int:
        return self._memory

    def _ask(
        self, message: Mapping[str, object], payloads: Sequence[bytes] = ()
    ) -> tuple[dict[str, Any], list[bytes]]:
        pipe = self._process.stdin
        assert pipe is not None
        text = json.dumps({**message, "bytes": [len(one) for one in payloads]}).encode()
        for piece in (struct.pack(">I", len(text)), text, *payloads):
            pipe.write(piece)
        pipe.flush()
        (size,) = struct.unpack(">I", self._read(4))
        answer = json.loads(self._read(size))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer, [self._read(size) for size in answer["bytes"]]

    def _read(self, size: int) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        data = pipe.read(size)
        if len(data) < size:
            raise RuntimeError(f"Node.js ended with status {self._process.wait()}")
        return data


def _tensors(described: Sequence[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(one["name"], one["dtype"], tuple(one["shape"]), one["bytes"]) for one in described
    )
