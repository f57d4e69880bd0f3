"""Reads the command stream that Vela makes: its operations, and the weights that each one reads.

Commands and registers are those of Vela's ethos_u55_regs, and of its ethos_u85_interface.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from edgekit.backends.ethos_u.vela import Made

OP_CONV, OP_DEPTHWISE, OP_POOL, OP_ELEMENTWISE, OP_RESIZE, OP_DMA = 2, 3, 5, 6, 7, 16
_WAITS = frozenset({0x000, 0x001, 0x011, 0x012, 0x013})
_PADDING, _IFM_DEPTH, _IFM_PRECISION = range(0x100, 0x104), 0x104, 0x105
_OFM_WIDTH, _OFM_HEIGHT, _OFM_DEPTH, _OFM_PRECISION = 0x111, 0x112, 0x113, 0x114
_OFM_BLOCK_DEPTH = 0x117
_KERNEL_WIDTH, _KERNEL_HEIGHT, _KERNEL_STRIDE = 0x120, 0x121, 0x122
_PARALLEL, _ACC_FORMAT, _ACTIVATION, _WEIGHT_REGION = 0x123, 0x124, 0x125, 0x128
_WEIGHT_FORMAT = 0x12E
_FROM_REGION, _TO_REGION, _DMA_ROWS, _DMA_PLANES = 0x130, 0x131, 0x132, 0x133
_WEIGHTS = ((0x20, 0x21), (0x90, 0x91), (0x92, 0x93), (0x94, 0x95))
"""The address and the length of each stream of weights."""
_OFM_SCALE = 0x24
_DMA_FROM, _DMA_TO, _DMA_LENGTH = 0x30, 0x31, 0x32
_SCALE_REGION, _SCALE_BASES, _SCALE_BYTES = 0x129, (0x22, 0x92), 10
_MEM2MEM = 0x100
_NATURAL, _NATURAL_U85 = 2, 1
_U85, _CHAINED = 2, 2
TABLE_BYTES = 256
_POOL_MODES, _ELEMENTWISE_MODES, _MULTIPLY = range(3), (0, 1, 2, 3, 4, 6), 0
_POOL_MODES_U85, _TABLES_U85, _RESIZE_MODES_U85 = range(6), (0, 1, 4), (0, 2)
_COMPARISONS_U85 = (16, 17, 18, 19, 33, 34)


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
    product: int
    """The family: 0 is U55, 1 is U65, 2 is U85."""

    @property
    def is_u85(self) -> bool:
        return self.product == _U85

    @property
    def cores(self) -> int:
        """Return the number of cores that share the output channels; those of an U85 are one."""
        return 2 if self.set.get(_PARALLEL) and not self.is_u85 else 1

    @property
    def output_block(self) -> int:
        """Return the output channels of a block."""
        return self.set[_OFM_BLOCK_DEPTH] + 1

    @property
    def microblock(self) -> int:
        """Return the pixels that an U85 computes at once."""
        return (1, 2, 4, 4, 8, 16)[self.set[_ACC_FORMAT] >> 8 & 7]

    @property
    def has_fast_weights(self) -> bool:
        """Return whether the weights have the format that an U85 reads in one step."""
        return bool(self.is_u85 and self.set.get(_WEIGHT_FORMAT, 0) & 1)

    @property
    def has_sparse_weights(self) -> bool:
        return bool(self.is_u85 and self.set.get(_WEIGHT_FORMAT, 0) & 0x10)

    @property
    def is_chained(self) -> bool:
        """Return whether the next operation takes the result without a memory between them."""
        return self.is_u85 and self.set[_OFM_PRECISION] >> 14 == _CHAINED

    @property
    def rounding(self) -> int:
        """Return the family's number for how results are rounded."""
        return self.payload[_OFM_SCALE] >> 45 if self.is_u85 else self.set[_OFM_PRECISION] >> 14

    @property
    def strides(self) -> tuple[int, int]:
        """Return the steps of the window, down and right."""
        stride = self.set[_KERNEL_STRIDE]
        right, down = stride & 1 | stride >> 5 & 2, stride >> 1 & 1 | stride >> 8 & 2
        return 1 + down, 1 + right

    @property
    def gaps(self) -> tuple[int, int]:
        """Return the distance of the window's taps, down and right."""
        stride = self.set[_KERNEL_STRIDE]
        return 1 + (stride >> 4 & 1), 1 + (stride >> 3 & 1)

    @property
    def is_part_kernel(self) -> bool:
        """Return whether weights are ordered by the window first."""
        return bool(self.set[_KERNEL_STRIDE] >> 2 & 1) and self.command == OP_CONV

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
        down, right = self.gaps
        return self.set[_KERNEL_HEIGHT] // down + 1, self.set[_KERNEL_WIDTH] // right + 1

    @property
    def weight_streams(self) -> tuple[tuple[int, int], ...]:
        """Return the address and the length of each stream of weights."""
        named = _WEIGHTS if self.is_u85 else _WEIGHTS[: self.cores]
        given = ((self.payload.get(start, 0), self.payload.get(size, 0)) for start, size in named)
        return tuple(pair for pair in given if pair[1])

    @property
    def macs(self) -> int:
        if self.command not in (OP_CONV, OP_DEPTHWISE):
            return 0
        rows, columns = self.kernel
        depth = 1 if self.command == OP_DEPTHWISE else self.inputs
        return self.pixels * self.outputs * rows * columns * depth


def operations(commands: bytes) -> Iterator[Operation]:
    words = list(struct.unpack(f"<{len(commands) // 4}I", commands[: len(commands) // 4 * 4]))
    start, count = _command_stream(words)
    product = _product(words)
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
            yield Operation(code, parameter, dict(registers), dict(payloads), place - 1, product)


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


def _product(words: list[int]) -> int:
    """Return the family that the driver's header asks for."""
    place = 1
    while place + 1 < len(words) and words[place] & 0xFF != 2:
        if words[place] & 0xFF == 1:
            return words[place + 1] >> 28
        place += 1
    raise NotInterpreted("its header does not say for which NPU it is")


def check(operation: Operation) -> None:
    """Raise NotInterpreted for what the twin does not compute."""
    if operation.is_u85:
        _check_u85(operation)
    else:
        _check_u55(operation)


def _check_u85(operation: Operation) -> None:
    command, mode = operation.command, operation.parameter
    registers = operation.set
    if command == OP_DMA:
        if registers[_FROM_REGION] >> 9:
            raise NotInterpreted("it copies blocks of two or three dimensions, or by indices")
        return
    if registers.get(_ACTIVATION, 0) & 0x1F not in _TABLES_U85:
        raise NotInterpreted("it has a table of more than 8 bits")
    if command in (OP_CONV, OP_DEPTHWISE):
        if registers[_IFM_PRECISION] >> 2 & 3:
            raise NotInterpreted("it convolves numbers of 16 bits")
        if command == OP_CONV and mode:
            raise NotInterpreted("its weights are no constants")
    elif command == OP_POOL and mode not in _POOL_MODES_U85:
        raise NotInterpreted(f"it pools in the mode {mode}")
    elif command == OP_ELEMENTWISE and mode not in (*_ELEMENTWISE_MODES, *_COMPARISONS_U85):
        raise NotInterpreted(f"it computes elements in the mode {mode}")
    elif command == OP_RESIZE and mode not in _RESIZE_MODES_U85:
        raise NotInterpreted("it repeats pixels")
    elif command not in (OP_POOL, OP_ELEMENTWISE, OP_RESIZE):
        raise NotInterpreted(f"it has the unknown operation {command:#x}")


def _check_u55(operation: Operation) -> None:
    command, mode = operation.command, operation.parameter
    registers = operation.set
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
        if registers[_IFM_PRECISION] >> 2 & 3 == 1 and mode != _MULTIPLY:
            raise NotInterpreted("it computes elements of more than 8 bits")
    else:
        raise NotInterpreted(f"it has the unknown operation {command:#x}")


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
    bases = [operation.payload[base] for base in _SCALE_BASES[: operation.cores]]
    own = -(-operation.outputs // len(bases))
    if source is None or max(bases) + (own - 1) * _SCALE_BYTES > len(source):
        raise NotInterpreted("it reads scales from a memory that the twin has not")
    bias_bytes = 4 if operation.is_u85 else 5
    found = []
    for channel in range(operation.outputs):
        at = bases[channel % len(bases)] + channel // len(bases) * _SCALE_BYTES
        bias = int.from_bytes(source[at : at + bias_bytes], "little", signed=True)
        factor = int.from_bytes(source[at + bias_bytes : at + bias_bytes + 4], "little")
        found.append((bias, factor / 2.0 ** (source[at + bias_bytes + 4] & 63)))
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
        once, own = _roundings(operation)
        stream += words[start + last : start + operation.place]
        stream += [*once, words[start + operation.place], *own]
        last = operation.place + 1
    stream += words[start + last : start + count]
    head = words[start - 1] & 0xFF | len(stream) >> 16 << 8 | (len(stream) & 0xFFFF) << 16
    whole = [*words[: start - 1], head, *stream]
    return struct.pack(f"<{len(whole)}I", *whole)


def _roundings(operation: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the command that sets one rounding, and the one that sets the operation's own."""
    if operation.is_u85:
        own = operation.payload[_OFM_SCALE]
        head, factor = own >> 32 << 16 | 0x4000 | _OFM_SCALE, own & 0xFFFFFFFF
        return (head & 0x1FFFFFFF | _NATURAL_U85 << 29, factor), (head, factor)
    own = operation.set[_OFM_PRECISION] << 16 | _OFM_PRECISION
    return (own & 0x3FFFFFFF | _NATURAL << 30,), (own,)


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


def weights_of(operation: Operation, memory: dict[int, bytearray]) -> tuple[bytes, ...]:
    """Return the streams of an operation's weights, as they are stored."""
    source = memory.get(operation.set[_WEIGHT_REGION])
    streams = operation.weight_streams
    if source is None or any(start + length > len(source) for start, length in streams):
        raise NotInterpreted("it reads weights from a memory that the twin has not")
    return tuple(bytes(source[start : start + length]) for start, length in streams)
