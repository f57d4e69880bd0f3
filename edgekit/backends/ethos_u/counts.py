"""Counts what the operations of a command stream compute and move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgekit.backends.ethos_u.stream import (
    OP_CONV,
    OP_DEPTHWISE,
    OP_DMA,
    OP_ELEMENTWISE,
    OP_RESIZE,
    Operation,
)

_IFM, _IFM2 = (0x105, 0x108), (0x185, 0x180)
"""The registers of an input's precision, and of what it repeats."""
_OFM_PRECISION, _DMA_LENGTH, _UPSCALE = 0x114, 0x32, 0x107
_OFM_HEIGHT, _OFM_WIDTH, _KERNEL_HEIGHT, _KERNEL_WIDTH = 0x112, 0x111, 0x121, 0x120
_PADDING = ((0x100, 0x103), (0x101, 0x102))
_REDUCE_SUM, _LAST_BINARY = 2, 4
_SCALE_BYTES = 10


@dataclass(frozen=True)
class Counts:
    macs: int
    """The multiply-accumulates of convolutions."""
    moved: int
    """The bytes that are read and written: each feature map of an operation once, its weights and
    scales, and what is copied. Blocks that the hardware reads again are not in it."""


def counts(operations: Iterable[Operation]) -> Counts:
    macs = moved = 0
    for operation in operations:
        macs += operation.macs
        moved += _moved(operation)
    return Counts(macs, moved)


def _moved(operation: Operation) -> int:
    if operation.command == OP_DMA:
        return 2 * operation.payload[_DMA_LENGTH]
    precision = operation.set[_OFM_PRECISION]
    written = 0
    if not operation.is_chained:
        written = (operation.pixels * operation.outputs) << (precision >> 1 & 3)
    if operation.command == OP_ELEMENTWISE:
        binary = operation.parameter <= _LAST_BINARY
        return written + sum(_operand(operation, *each) for each in (_IFM, _IFM2)[: 1 + binary])
    read = _image(operation) << (operation.set[_IFM[0]] >> 2 & 3)
    if operation.command in (OP_CONV, OP_DEPTHWISE):
        read += sum(length for _, length in operation.weight_streams)
        read += _SCALE_BYTES * operation.outputs
    return written + read


def _operand(operation: Operation, precision: int, broadcast: int) -> int:
    """Return the bytes of one side of an operation by elements; a scalar has none."""
    own, repeated = operation.set[precision], operation.set.get(broadcast, 0)
    scalar = 8 if operation.is_u85 else 0x80
    if repeated & scalar or (operation.is_u85 and own >> 14):
        return 0
    extents = operation.set[_OFM_HEIGHT] + 1, operation.set[_OFM_WIDTH] + 1, operation.outputs
    size = 1
    for axis, extent in enumerate(extents):
        size *= 1 if repeated >> axis & 1 else extent
    return size << (own >> 2 & 3)


def _image(operation: Operation) -> int:
    """Return the elements under the windows of an operation."""
    registers = operation.set
    depth = operation.outputs
    if operation.command == OP_CONV or operation.parameter == _REDUCE_SUM:
        depth = operation.inputs
    if operation.command == OP_RESIZE:
        rows, columns = registers[_KERNEL_HEIGHT] + 1, registers[_KERNEL_WIDTH] + 1
        return rows * columns * operation.outputs
    made = (registers[_OFM_HEIGHT], registers[_OFM_WIDTH])
    window = (registers[_KERNEL_HEIGHT], registers[_KERNEL_WIDTH])
    size = depth
    for steps, stride, span, sides in zip(made, operation.strides, window, _PADDING, strict=True):
        extent = steps * stride + span + 1 - sum(registers.get(side, 0) for side in sides)
        size *= -(-extent // 2) if registers.get(_UPSCALE) else extent
    return size
