"""A region as a stream of commands: where every tensor lies, and what is moved when.

A tensor that a later layer reads waits in the SRAM if a gap is left there, else in scratch memory
outside. Weights, and what waits outside, are loaded into the other half for one command each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.backends.base import Region, Step, Tensor
from edgekit_tern.npu import Code, Command, Npu, Space, aligned

MAGIC = int.from_bytes(b"TERN", "little")


@dataclass(frozen=True)
class Program:
    commands: tuple[Command, ...]
    weights: bytes
    sram: int
    scratch: int

    @property
    def stream(self) -> bytes:
        words = [MAGIC, self.sram, self.scratch, *(w for command in self.commands for w in command)]
        return np.array(words, "<u4").tobytes()


@dataclass(frozen=True)
class _Outside:
    space: Space
    index: int
    offset: int = 0


@dataclass(frozen=True)
class _Waiting:
    """A tensor's place in the half of the SRAM where tensors wait."""

    start: int
    end: int
    last: int
    """The last step that reads it."""


def write_program(region: Region, npu: Npu) -> Program:
    writer = _Writer(region, npu)
    for number, step in enumerate(region.steps):
        writer.write(number, step)
    return Program(tuple(writer.commands), bytes(writer.weights), npu.sram, writer.scratch)


class _Writer:
    def __init__(self, region: Region, npu: Npu) -> None:
        self.npu = npu
        self.commands: list[Command] = []
        self.weights = bytearray()
        self.scratch = 0
        self._results = {t.name: index for index, t in enumerate(region.outputs)}
        self._outside = {t.name: _Outside(Space.INPUT, i) for i, t in enumerate(region.inputs)}
        self._waiting: dict[str, _Waiting] = {}
        self._last = {t.name: n for n, step in enumerate(region.steps) for t in step.inputs}
        self._top = 0
        """The end of what the command at work has in its half."""

    def write(self, number: int, step: Step) -> None:
        self._top = 0
        (target,) = step.outputs
        sources = [self._source(tensor) for tensor in step.inputs]
        constants = [self._constant(step, name) for name in ("weight", "bias")[: _constants(step)]]
        self._waiting = {n: w for n, w in self._waiting.items() if w.last >= number}
        made = self._place(target, number)
        self._command(step, [*sources, *constants, made], target)
        if target.name in self._results:
            self._move(Code.STORE, _Outside(Space.OUTPUT, self._results[target.name]), made, target)
        if target.name in self._last and target.name not in self._waiting:
            place = _Outside(Space.SCRATCH, 0, self.scratch)
            self.scratch += aligned(target.nbytes)
            self._outside[target.name] = place
            self._move(Code.STORE, place, made, target)

    def _command(self, step: Step, addresses: list[int], target: Tensor) -> None:
        relu = int(step.layer.settings["relu"])  # type: ignore[arg-type]
        if step.layer.kind == "conv":
            *numbers, groups = step.layer.settings["numbers"]  # type: ignore[misc]
            self.commands.append((Code.CONV, *addresses, *numbers, groups << 1 | relu))
        else:
            code = Code.ADD if step.layer.kind == "add" else Code.MOVE
            self.commands.append((code, *addresses, target.nbytes // 4, relu))

    def _source(self, tensor: Tensor) -> int:
        if tensor.name in self._waiting:
            return self._waiting[tensor.name].start
        address = self._at_work(tensor.nbytes)
        self._move(Code.LOAD, self._outside[tensor.name], address, tensor)
        return address

    def _constant(self, step: Step, name: str) -> int:
        content = step.layer.weights[name].tobytes()
        address, offset = self._at_work(len(content)), len(self.weights)
        self.weights += content
        self.commands.append((Code.LOAD, Space.WEIGHTS, 0, offset, address, len(content)))
        return address

    def _place(self, target: Tensor, number: int) -> int:
        """Return the address of a result: it waits in the first gap that is long enough."""
        size, start = aligned(target.nbytes), self.npu.half
        if target.name not in self._last:
            return self._at_work(target.nbytes)
        for other in sorted(self._waiting.values(), key=lambda each: each.start):
            if other.start - start >= size:
                break
            start = other.end
        if start + size > 2 * self.npu.half:
            return self._at_work(target.nbytes)
        self._waiting[target.name] = _Waiting(start, start + size, self._last[target.name])
        return start

    def _at_work(self, size: int) -> int:
        address = self._top
        self._top += aligned(size)
        return address

    def _move(self, code: Code, outside: _Outside, address: int, tensor: Tensor) -> None:
        place = (outside.space, outside.index, outside.offset)
        self.commands.append((code, *place, address, tensor.nbytes))


def _constants(step: Step) -> int:
    return len(step.layer.weights)
