"""The hardware: the sizes that decide what fits, and how long commands take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

LANES = 16
"""The side of the square of multipliers: input channels by output channels, a cycle."""
BUS = 8
"""Bytes that a transfer moves in a cycle."""
ALIGNMENT = 16


class Code(IntEnum):
    """Commands, with their operands."""

    LOAD = 1  # space, index, offset, address, bytes
    STORE = 2  # the same
    CONV = 3  # x, weights, bias, y, n c h w, oc oh ow, kernel, strides, top left, dilations, groups
    ADD = 4  # a, b, y, count, relu
    MOVE = 5  # a, y, count, relu


class Space(IntEnum):
    """Memory outside the NPU."""

    INPUT = 0
    WEIGHTS = 1
    SCRATCH = 2
    OUTPUT = 3


Command = tuple[int, ...]


@dataclass(frozen=True)
class Npu:
    sram: int
    """Bytes of its own memory. Half of it is for the command at work, half for what waits."""
    mhz: int

    @property
    def half(self) -> int:
        return self.sram // 2

    def microseconds(self, commands: Sequence[Command]) -> float:
        return sum(cycles(command) for command in commands) / self.mhz


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def cycles(command: Command) -> int:
    """Return what the simulator counts for a command."""
    return _CYCLES[Code(command[0])](command[1:])


def _transfer(operands: Sequence[int]) -> int:
    return 32 + math.ceil(operands[4] / BUS)


def _convolution(operands: Sequence[int]) -> int:
    n, c, _, _, oc, oh, ow, kh, kw = operands[4:13]
    groups = operands[19] >> 1
    squares = groups * math.ceil(c / groups / LANES) * math.ceil(oc / groups / LANES)
    return 64 + n * oh * ow * kh * kw * squares


def _elements(operands: Sequence[int]) -> int:
    return 16 + math.ceil(operands[-2] / LANES)


_CYCLES: Mapping[Code, Callable[[Sequence[int]], int]] = {
    Code.LOAD: _transfer,
    Code.STORE: _transfer,
    Code.CONV: _convolution,
    Code.ADD: _elements,
    Code.MOVE: _elements,
}
