"""Reads the command stream that Vela makes: its operations, and the weights that each one reads.

Commands and registers are those of Vela's ethos_u55_regs.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from edgekit.backends.ethos_u.configuration import Accelerator
from edgekit.backends.ethos_u.vela import Made
from edgekit.base.arrays import Array

OP_CONV, OP_DEPTHWISE, OP_POOL, OP_ELEMENTWISE, OP_DMA = 0x002, 0x003, 0x005, 0x006, 0x010
_WAITS = frozenset({0x000, 0x001, 0x011, 0x012, 0x013})
_PADDING, _IFM_DEPTH, _IFM_PRECISION = range(0x100, 0x104), 0x104, 0x105
_OFM_WIDTH, _OFM_HEIGHT, _OFM_DEPTH, _OFM_PRECISION = 0x111, 0x112, 0x113, 0x114
_OFM_BLOCK_DEPTH = 0x117
_KERNEL_WIDTH, _KERNEL_HEIGHT, _KERNEL_STRIDE = 0x120, 0x121, 0x122
_PARALLEL, _ACTIVATION, _WEIGHT_REGION = 0x123, 0x125, 0x128
_FROM_REGION, _TO_REGION, _DMA_ROWS, _DMA_PLANES = 0x130, 0x131, 0x132, 0x133
_WEIGHT_BASE, _WEIGHT_LENGTH, _OFM_SCALE = 0x20, 0x21, 0x24
_DMA_FROM, _DMA_TO, _DMA_LENGTH = 0x30, 0x31, 0x32
_SCALE_REGION, _SCALE_BASE, _SCALE_BYTES = 0x129, 0x22, 10
_MEM2MEM = 0x100
_NATURAL = 2
TABLE_BYTES = 256
_POOL_MODES, _ELEMENTWISE_MODES, _MULTIPLY = range(3), (0, 1, 2, 3, 4, 6), 0


class NotInterpreted(Exception):
    """The reason why the twin cannot run a command stream."""


@dataclass(frozen=True)
class Operation:
    """One operation, with the registers at its start."""

    command: int
    parameter: int
    set: dict[int, int]
    payload: dict[int, int]
    place: int
    """The number of its word in the command stream."""

    @property
    def outputs(self) -> int:
        return self.set[_OFM_DEPTH] + 1

    @property
    def pixels(self) -> int:
        return (self.set[_OFM_HEIGHT] + 1) * (self.set[_OFM_WIDTH] + 1)

    @property
    def inputs(self) -> int:
        return self.set[_IFM_DEPTH] + 1

    @property
    def kernel(self) -> tuple[int, int]:
        """Return the rows and columns of the window, without its gaps."""
        stride = self.set[_KERNEL_STRIDE]
        down, right = 1 + (stride >> 4 & 1), 1 + (stride >> 3 & 1)
        return self.set[_KERNEL_HEIGHT] // down + 1, self.set[_KERNEL_WIDTH] // right + 1

    @property
    def macs(self) -> int:
        if self.command not in (OP_CONV, OP_DEPTHWISE):
            return 0
        rows, columns = self.kernel
        depth = 1 if self.command == OP_DEPTHWISE else self.inputs
        return self.pixels * self.outputs * rows * columns * depth


@dataclass(frozen=True)
class Decoded:
    """The weights of all convolutions, one after the other."""

    weights: Array
    """int8; of each convolution output channel, row, column, input channel."""
    places: tuple[int, ...]
    """The place of each convolution's weights, in the order of the commands."""


def operations(commands: bytes) -> Iterator[Operation]:
    words = list(struct.unpack(f"<{len(commands) // 4}I", commands[: len(commands) // 4 * 4]))
    start, count = _command_stream(words)
    stream = words[start : start + count]
    registers: dict[int, int] = {}
    payloads: dict[int, int] = {}
    place = 0
    while place < len(stream):
        word = stream[place]
        code, parameter = word & 0x3FF, word >> 16
        if word & 0xC000 == 0x4000:
            if place + 1 >= len(stream):
                raise NotInterpreted("its command stream ends in a command")
            payloads[code] = parameter << 32 | stream[place + 1]
            place += 2
            continue
        place += 1
        if code >= 0x100:
            registers[code] = parameter
        elif code not in _WAITS:
            yield Operation(code, parameter, dict(registers), dict(payloads), place - 1)


def _command_stream(words: list[int]) -> tuple[int, int]:
    """Return where the commands begin behind the driver's header, and their number."""
    if not words or words[0] != int.from_bytes(b"COP1", "little"):
        raise NotInterpreted("its commands begin with another header than COP1")
    place = 1
    while place < len(words):
        action = words[place] & 0xFF
        if action == 2:
            return place + 1, words[place] >> 16 | (words[place] & 0xFF00) << 8
        place += 3 if action == 1 else 1
    raise NotInterpreted("its commands have no command stream")


def check(operation: Operation) -> None:
    """Raise NotInterpreted for what the twin does not compute."""
    command, mode = operation.command, operation.parameter
    registers = operation.set
    if registers.get(_PARALLEL):
        raise NotInterpreted("it is for an NPU with two cores")
    if command == OP_DMA:
        if mode != 0 or registers.get(_DMA_ROWS) or registers.get(_DMA_PLANES):
            raise NotInterpreted("it copies blocks of two or three dimensions")
        return
    function = registers.get(_ACTIVATION, 0)
    if function & 0x1F not in (0, *range(16, 24)) or function >> 12:
        raise NotInterpreted(f"it has the activation function {function:#x}")
    if command in (OP_CONV, OP_DEPTHWISE):
        if registers[_IFM_PRECISION] >> 2 & 3:
            raise NotInterpreted("it convolves numbers of 16 bits")
    elif command == OP_POOL:
        if mode not in _POOL_MODES:
            raise NotInterpreted(f"it pools in the mode {mode}")
        padded = any(registers.get(side) for side in _PADDING)
        if mode and not registers[_OFM_PRECISION] >> 8 & 1:
            raise NotInterpreted("it pools with a scale for each channel")
        if mode and padded and (mode != 1 or operation.payload.get(_OFM_SCALE) != 1):
            raise NotInterpreted("it pools with padding and another scale")
    elif command == OP_ELEMENTWISE:
        if mode not in _ELEMENTWISE_MODES:
            raise NotInterpreted(f"it computes elements in the mode {mode}")
        if registers[_IFM_PRECISION] >> 2 & 3 and mode != _MULTIPLY:
            raise NotInterpreted("it computes elements of more than 8 bits")
    else:
        raise NotInterpreted(f"it has the unknown operation {command:#x}")


def decode(made: Made, accelerator: Accelerator) -> Decoded:
    """Return the weights as the twin reads them; raise NotInterpreted for what it does not run."""
    import numpy as np

    for operation in operations(made.commands):
        check(operation)
    known: dict[tuple[bytes, tuple[int, ...]], int] = {}
    parts: list[Array] = []
    places: list[int] = []
    size = 0
    for operation, memory in convolutions(made):
        stored = _weights_of(operation, memory)
        shape = _shape(operation)
        key = (stored, (*shape, operation.set[_OFM_BLOCK_DEPTH], operation.set[_KERNEL_STRIDE]))
        if key not in known:
            known[key] = size
            parts.append(_in_order(operation, stored, accelerator).reshape(-1))
            size += parts[-1].size
        places.append(known[key])
    weights = np.concatenate(parts) if parts else np.zeros(1, np.int8)
    return Decoded(weights, tuple(places) or (0,))


def convolutions(made: Made) -> Iterator[tuple[Operation, dict[int, bytearray]]]:
    """Yield each convolution, with the memories by region as the copies before it leave them."""
    memory = {
        made.scratch_region: bytearray(made.scratch_bytes + made.fast_bytes),
        made.constants_region: bytearray(made.constants),
    }
    for operation in operations(made.commands):
        if operation.command == OP_DMA:
            _copy(operation, memory)
        elif operation.command in (OP_CONV, OP_DEPTHWISE):
            yield operation, memory


def scales_of(operation: Operation, memory: dict[int, bytearray]) -> list[tuple[int, float]]:
    """Return the bias and the factor of each output channel."""
    source = memory.get(operation.set[_SCALE_REGION])
    start = operation.payload[_SCALE_BASE]
    if source is None or start + operation.outputs * _SCALE_BYTES > len(source):
        raise NotInterpreted("it reads scales from a memory that the twin has not")
    found = []
    for channel in range(operation.outputs):
        at = start + channel * _SCALE_BYTES
        bias = int.from_bytes(source[at : at + 5], "little", signed=True)
        factor = int.from_bytes(source[at + 5 : at + 9], "little")
        found.append((bias, factor / 2.0 ** (source[at + 9] & 63)))
    return found


def rounding_once(commands: bytes, places: Collection[int]) -> bytes:
    """Return the commands with one rounding, half up, in the operations at these places."""
    words = list(struct.unpack(f"<{len(commands) // 4}I", commands))
    start, count = _command_stream(words)
    stream: list[int] = []
    last = 0
    for operation in operations(commands):
        if operation.place not in places:
            continue
        own = operation.set[_OFM_PRECISION]
        stream += words[start + last : start + operation.place]
        stream += [_precision(own & 0x3FFF | _NATURAL << 14), words[start + operation.place]]
        stream.append(_precision(own))
        last = operation.place + 1
    stream += words[start + last : start + count]
    head = words[start - 1] & 0xFF | len(stream) >> 16 << 8 | (len(stream) & 0xFFFF) << 16
    whole = [*words[: start - 1], head, *stream]
    return struct.pack(f"<{len(whole)}I", *whole)


def _precision(value: int) -> int:
    return value << 16 | _OFM_PRECISION


def tables(made: Made) -> tuple[int, ...]:
    """Return the places in the constants of the tables of 256 bytes that the NPU loads."""
    found: list[int] = []
    for operation in operations(made.commands):
        registers, payload = operation.set, operation.payload
        if operation.command != OP_DMA or not registers[_TO_REGION] & _MEM2MEM:
            continue
        if registers[_FROM_REGION] == made.constants_region:
            length = payload[_DMA_LENGTH]
            found += range(payload[_DMA_FROM], payload[_DMA_FROM] + length, TABLE_BYTES)
    return tuple(dict.fromkeys(found))


def _copy(operation: Operation, memory: dict[int, bytearray]) -> None:
    registers, payload = operation.set, operation.payload
    length = payload[_DMA_LENGTH]
    if registers[_TO_REGION] & _MEM2MEM:
        return
    source, target = memory.get(registers[_FROM_REGION]), memory.get(registers[_TO_REGION])
    if source is None or target is None:
        raise NotInterpreted("it copies from or to a memory that the twin has not")
    start, to = payload[_DMA_FROM], payload[_DMA_TO]
    target[to : to + length] = source[start : start + length]


def _weights_of(operation: Operation, memory: dict[int, bytearray]) -> bytes:
    source = memory.get(operation.set[_WEIGHT_REGION])
    start, length = operation.payload[_WEIGHT_BASE], operation.payload[_WEIGHT_LENGTH]
    if source is None or start + length > len(source):
        raise NotInterpreted("it reads weights from a memory that the twin has not")
    return bytes(source[start : start + length])


def _shape(operation: Operation) -> tuple[int, int, int, int]:
    depth = 1 if operation.command == OP_DEPTHWISE else operation.inputs
    return (operation.outputs, *operation.kernel, depth)


def _in_order(operation: Operation, stored: bytes, accelerator: Accelerator) -> Array:
    """Decode weights, and put them from the order of the NPU's blocks into that of channels."""
    import numpy as np
    from ethosu import mlw_codec

    decoded = np.array(mlw_codec.decode(bytearray(stored)), np.int32)
    if decoded.size and not -128 <= int(decoded.min()) <= int(decoded.max()) <= 127:
        raise NotInterpreted("its weights have 9 bits")
    shape = _shape(operation)
    result: Array = np.zeros(shape, np.int8)
    place = 0
    for index, valid in _bricks(operation, shape, accelerator):
        part = decoded[place : place + valid.size]
        if part.size != valid.size:
            raise NotInterpreted("it has fewer weights than its convolution takes")
        result[tuple(axis[valid] for axis in index)] = part[valid]
        place += valid.size
    return result


def _bricks(
    operation: Operation, shape: tuple[int, int, int, int], accelerator: Accelerator
) -> Iterator[tuple[tuple[Array, ...], Array]]:
    """Yield the weights' coordinates, block by block, and which of them are no filling."""
    import numpy as np

    outputs, height, width, inputs = shape
    is_depthwise = operation.command == OP_DEPTHWISE
    stride = operation.set[_KERNEL_STRIDE]
    part_kernel = bool(stride >> 2 & 1) and not is_depthwise
    output_block = operation.set[_OFM_BLOCK_DEPTH] + 1
    input_block = 16 if part_kernel else 32
    rows, columns = 8 >> (stride >> 4 & 1), 8 >> (stride >> 3 & 1)
    ub_in, ub_out = accelerator.input_depth, accelerator.output_depth
    for first_out in range(0, outputs, output_block):
        depth_out = min(output_block, outputs - first_out)
        for first_in in range(0, 1 if is_depthwise else inputs, input_block):
            depth_in = ub_in if is_depthwise else input_block
            if part_kernel:
                depth_in = min(input_block, inputs - first_in)
            for top in range(0, height, rows):
                for left in range(0, width, columns):
                    tall, wide = min(height - top, rows), min(width - left, columns)
                    elements = tall * wide
                    if part_kernel or is_depthwise:
                        elements = -(-elements // 4) * 4
                    outer = range(0, depth_in if part_kernel else 1, ub_in)
                    inner = range(0, 1 if part_kernel else depth_in, ub_in)
                    a, b, e, i, o, k = np.meshgrid(
                        np.array(outer),
                        np.arange(0, depth_out, ub_out),
                        np.arange(elements),
                        np.array(inner),
                        np.arange(ub_out),
                        np.arange(1 if is_depthwise else ub_in),
                        indexing="ij",
                    )
                    ky, kx = e // wide, e % wide
                    z, c = first_out + b + o, first_in + a + i + k
                    valid = (z < outputs) & (c < inputs) & (ky < tall)
                    flat = (z, top + ky, left + kx, c)
                    yield tuple(axis.reshape(-1) for axis in flat), valid.reshape(-1)
